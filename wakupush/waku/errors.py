"""The errors of a Waku node. Each class tells its catcher what to do."""


class NodeError(Exception):
    """The root: catch it where any trouble with the node is treated alike."""


class NodeUnreachable(NodeError):
    """The node did not serve the request: no connection, no answer in time, a 5xx, a missing route.

    Try again later. Whether the node acted on the request is unknown. A go-waku that accepts connections and times out
    on every request of relay, or on every subscription of filter, hangs: it has to be restarted.
    """


class AnswerLost(NodeUnreachable):
    """The request may have reached the node, but no answer came."""


class PushedToNobody(NodeUnreachable):
    """A nwaku handed a light push to nobody: it has no peers, or serves another shard, or knows the message already.

    After `AnswerLost` the last is likely, and the message is out.
    """


class NotPublished(NodeUnreachable):
    """The node says that it published a message to nobody: it is not subscribed to the shard, or has no peers there.

    Try again, or on another node. A go-waku says so of a message that is too large, too. Other shards may work.
    """


class NodeBusy(NodeUnreachable):
    """The node limits the rate of requests: ask again, more slowly."""


class NotSubscribed(NodeError):
    """The node has no subscription to the topic that was read: it is new or was restarted.

    Subscribe; reconcile fetches the missed messages from the Store.
    """


class NodeRefused(NodeError):
    """The node judged the request and will never take it. Do not send it again.

    Attributes:
        status: the HTTP status.
        text: the node's reason, at most 200 printable characters.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


class NodeUnreadable(NodeError):
    """The answer is not that of a Waku node. If it was a read, the messages that it took out of the node are lost.

    Count it and go on: the Store heals the loss. If every answer is like that, the URL is not that of a Waku node.
    """


class EndlessPages(NodeUnreadable):
    """The pages of a query do not end: ask for less, or do not trust the Store."""


class AnswerTooLarge(NodeUnreadable):
    """The answer has too many bytes. Ask for less; the Store has the messages that a read took out."""
