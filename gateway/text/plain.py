"""Plain text for every checkpoint: no invisible characters, no markup, entities decoded.

Nothing that is said is lost: what goes are signs that format a text. Speaker tags and cues such as ``[whisper]`` stay.
All work is linear in the length of the text.
"""

from __future__ import annotations

import html
import re

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_INLINE = (
    "speak|voice|prosody|emphasis|say-as|sub|phoneme|lang|w|span|a|b|i|u|em|strong|small|mark|code|sup|font|abbr|img"
)
_BLOCK = "p|s|div|br|hr|h[1-6]|li|ul|ol|tr|table|section|article|blockquote|break|paragraph|sentence|html|body|pre"
_ATTRIBUTES = r"(?:\s{1,20}[\w:-]{1,40}\s?=[^<>]{0,500})?\s{0,20}/?>"
_MARKUP = re.compile(rf"</?(?:(?:{_INLINE})|(?P<block>{_BLOCK})){_ATTRIBUTES}", re.I)
_COMMENT = re.compile(r"<!--(?:[^-]|-(?!->)){0,2000}-->|<\?xml[^<>]{0,200}\?>|<!DOCTYPE[^<>]{0,200}>", re.I)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_FENCE = re.compile(r"^[^\S\n]*(```|~~~)[^\n]*\n(?:(?!^[^\S\n]*\1)[^\n]*\n)*(?:^[^\S\n]*\1[^\n]*(?:\n|\Z)|\Z)", re.M)
_LINK = re.compile(
    r"(!?)\[([^\[\]\n]{1,500})\]\(<?[^()\s<>]{0,2000}>?(?:[^\S\n]+(?:\"[^\"\n]{0,300}\"|'[^'\n]{0,300}'))?\)"
)
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,40}\]:?")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]{1,2000})>")
_TASK = re.compile(r"^([^\S\n]*[-*+])[^\S\n]+\[[ xX]\][^\S\n]+", re.M)
_TABLE_RULER = re.compile(
    r"^[^\S\n]*\|?[^\S\n]*:?-{1,200}:?[^\S\n]*(?:\|[^\S\n]*:?-{1,200}:?[^\S\n]*){1,100}\|?[^\S\n]*\n?", re.M
)
_TABLE_ROW = re.compile(r"^[^\S\n]*\|([^\n]*)\|[^\S\n]*$", re.M)


def plain(text: str) -> str:
    """Remove invisible characters, HTML, SSML and Markdown; decode entities."""
    text = _INVISIBLE.sub("", text)
    if "<" in text:
        text = _COMMENT.sub(" ", text)
        text = _AUTOLINK.sub(r"\1", _MARKUP.sub(_markup, text))
    if "&" in text:
        text = _INVISIBLE.sub("", _ENTITY.sub(lambda found: html.unescape(found[0]), text)).replace("\u00a0", " ")
    return _markdown(text)


def _markup(found: re.Match[str]) -> str:
    """Blocks end a line; tags inside a line vanish."""
    return "\n" if found["block"] else ""


def _markdown(text: str) -> str:
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    if "[" in text:
        text = _TASK.sub(r"\1 ", _LINK.sub(r"\2", _FOOTNOTE.sub("", text)))
    if "|" in text:
        text = _TABLE_ROW.sub(_row, _TABLE_RULER.sub("", text))
    return text


def _row(found: re.Match[str]) -> str:
    """The cells of a table's row as a list; the row ends like any other line."""
    cells = [cell.strip() for cell in found[1].split("|")]
    said = ", ".join(cell for cell in cells if cell)
    return said if not said or said[-1] in ".!?" else f"{said}."
