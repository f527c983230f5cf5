"""Texts that somebody else may have written, made safe to show."""

__all__ = ["visible"]


def visible(text: str) -> str:
    r"""The text with every sign that cannot be seen written as an escape.

    A terminal obeys control characters: one of them may clear the screen or begin a line of its own, and another turns
    the direction of writing round.

    Parameters
    ----------
    text : str
        From a file, or any other that is not our own.

    Returns
    -------
    text : str
        Of printable characters only; it is the same where there were no others.

    Examples
    --------
    >>> visible("größe\x1b[2J")
    'größe\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
