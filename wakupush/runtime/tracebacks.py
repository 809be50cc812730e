"""The places that an exception comes from, without its text: its text can hold rows, tokens or messages."""


def places(error: BaseException) -> list[str]:
    """Return the innermost places of the traceback, as module:function:line."""
    result = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        result.append(f"{step.tb_frame.f_globals.get('__name__', '?')}:{code.co_name}:{step.tb_lineno}")
        step = step.tb_next
    return result[-5:]
