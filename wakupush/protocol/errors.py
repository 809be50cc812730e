"""The error of opening and checking a stranger's bytes."""

from wakupush.model.failures import Failure


class Refused(Exception):
    """A message is refused; the failure decides the answer to its sender.

    It is always the message's fault, never ours, and the text never holds anything of the message.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.label)
        self.failure = failure
