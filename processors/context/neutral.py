"""Context, neutral text: recalled words as one line of data that can close no block and speak for nobody.

What a memory says stays readable; what it could do to a prompt is taken away: line breaks, markup, the marks of chat
templates, invisible and direction-changing characters (Unicode TR 36), role labels, and numbers in square brackets.
"""

from __future__ import annotations

import unicodedata
from typing import Final

import regex

LINE_MARK: Final = "⏎"
_BREAKS: Final = regex.compile(r"[ \t]*(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])[\s\x1c-\x1e]*")
# A joiner inside an emoji is part of its picture; anywhere else such characters only hide things.
_HIDDEN: Final = regex.compile(
    r"(?<!\p{Extended_Pictographic}\uFE0F?)\u200d|[\p{Cc}\p{Cs}\p{Co}\p{Cn}]|(?!\u200d)\p{Cf}"
)
# Bold, script and other letters that only look different; a role label in them is still one.
_STYLED: Final = regex.compile(r"[\U0001D400-\U0001D7FF\uFF21-\uFF3A\uFF41-\uFF5A\u24B6-\u24E9]+")
_STACKED: Final = regex.compile(r"(\p{M}{3})\p{M}+")
# Ordinary words with single spaces: nothing below would change them.
_PLAIN: Final = regex.compile(r"(?:[\p{Han}\p{Latin}0-9,.;'!?，。、；！？·/%+()‘’→]|(?<! ) (?! ))*+")
_SPACES: Final = regex.compile(r"[\s\p{Z}]{2,}|[\p{Z}]")
_FENCES: Final = regex.compile(r"`{3,}|~{3,}")
# Not *: a masked number has four.
_RULES: Final = regex.compile(r"([-=_#|])(?:\s?\1){2,}")
_BRACES: Final = regex.compile(r"(?P<open>\{[{%]|\$\{)|[%}]\}")
_TERMINAL: Final = regex.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
# The two labels of a turn's digest are ours.
_LENTICULAR: Final = regex.compile(r"【(?!(?:动作|对象|action|object)】)|(?<!【(?:动作|对象|action|object))】")
_ROLE: Final = regex.compile(
    r"(?i)(?<![\p{L}\p{N}])(system(?: (?:message|prompt|note))?|assistant|developer|user|human|tool|instructions?"
    r"|note to (?:ai|assistant)|系统(?:消息|提示词?|指令)?|助手|用户|开发者|工具|指令|说明|用户的问题|问题)\s*[:：]"
)
_SIGNS: Final = str.maketrans(
    {
        **dict.fromkeys("<＜﹤", "‹"),
        **dict.fromkeys(">＞﹥", "›"),
        **dict.fromkeys("[［", "("),
        **dict.fromkeys("]］", ")"),
        "“": "‘",
        "”": "’",
        '"': "'",
        "＂": "'",
    }
)


def as_data(text: str, *, longest: int | None = None) -> str:
    """One line of at most `longest` characters, without anything that a prompt or its reader takes for structure.

    Doing it twice changes nothing more. Angle and square brackets become ‹› and (), double quotes single ones, so that
    what is put between “ and ” cannot end there.
    """
    # Longer than any item; what is cut anyway need not be cleaned.
    line = text if longest is None else text[: longest * 4 + 64]
    if _PLAIN.fullmatch(line):
        line = line.strip()
        return _cut(line, longest) if longest is not None else line
    line = _BREAKS.sub(f" {LINE_MARK} ", _TERMINAL.sub("", line))
    line = _STYLED.sub(lambda match: unicodedata.normalize("NFKC", match[0]), line)
    line = _HIDDEN.sub("", line)
    line = _STACKED.sub(r"\1", line).translate(_SIGNS)
    line = _FENCES.sub("'''", line)
    line = _RULES.sub(r"\1", line)
    line = _BRACES.sub(lambda match: "(" if match["open"] else ")", line)
    line = _LENTICULAR.sub(lambda match: "〔" if match[0] == "【" else "〕", line)
    line = _SPACES.sub(" ", line).strip(f" {LINE_MARK}")
    line = _ROLE.sub(lambda match: f"{match[1]}∶", line)
    return _cut(line, longest) if longest is not None else line


def _cut(line: str, longest: int) -> str:
    if len(line) <= longest:
        return line
    # A letter and its marks, or a joined emoji, stay together.
    clusters = regex.findall(r"\X", line[: longest + 16])
    total = 0
    for cluster in clusters:
        if total + len(cluster) > longest - 1:
            break
        total += len(cluster)
    return line[:total].rstrip() + "…"
