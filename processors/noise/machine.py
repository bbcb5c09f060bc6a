"""Noise, machine text: log lines, stack traces, dumps, encoded bytes and minified code, told by their shape."""

from __future__ import annotations

import re
from typing import Final

import regex

from processors.noise.normal import information

_LINK: Final = regex.compile(r"\b[a-z][a-z0-9+.-]{1,10}://\S++", regex.IGNORECASE)
_LOG_LINE: Final = regex.compile(
    r"""^(?=.{1,600}$)\s*+(?:
      \[?\d{4}[-/]\d{2}[-/]\d{2}[T\s]\d{2}:\d{2}(?::\d{2})?\S*\s.*\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b.*
    | \[?\d{2}:\d{2}:\d{2}\S*\s+\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b.*
    | (?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)[:\s|\]].*
    | \d{1,3}(?:\.\d{1,3}){3}\s\S+\s\S+\s\[[^\]]+\]\s".*
    | (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}\s\d{2}:\d{2}:\d{2}\s\S+\s\S+:.*
    | Traceback\s\(most\srecent\scall\slast\):.*
    | File\s"[^"]+",\sline\s\d+.*
    | (?:Caused\sby:\s|Exception\sin\sthread\s).*
    | at\s[\w$.<>/]+\(.*\)
    | \.\.\.\s\d+\smore
    | (?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?::.*)?
    | goroutine\s\d+\s\[.*
    | [\w./*()]+\(.*\)$
    | /\S+\.\w+:\d+.*
    | exit\sstatus\s\d+
    | npm\s(?:ERR!|WARN).*
    | [0-9a-f]{4,8}[:\s]\s*(?:[0-9a-f]{2,4}\s+){4,}.*
    )$""",
    regex.VERBOSE | regex.MULTILINE,
)
# Inside a trace, indented lines are its source excerpts.
_TRACE: Final = regex.compile(
    r"^Traceback \(most recent call last\):(?:\n[ \t]+[^\n]*+)*+(?:\n[^\n]*+)?", regex.MULTILINE
)
_ENCODED: Final = regex.compile(r"(?<![\w+/=-])(?:[A-Za-z0-9+/_-]{48,}+={0,2}|(?:0x)?[0-9a-fA-F]{32,}+)(?![\w+/=-])")
_LONG_LINE: Final = regex.compile(r"^[\x20-\x7e]{160,}+$", regex.MULTILINE)
_CODE_SYMBOL: Final = regex.compile(r"[{}()\[\];=<>&|,:\"']")
# Below this much that is left over, nobody has said anything beside the machine text ("看看：" and the like).
_LEAST_OWN: Final = 10


# No line of any kind above is without one of these; ordinary words are done here.
_HINT: Final = re.compile(
    r"[(\[{=/\\]|\d{2}[:.]\d|[A-Z]{4}|Error|Exception|Traceback|Caused by|goroutine|exit status|npm |\.\.\.\s\d"
    r"|[A-Za-z0-9+/_-]{32}|[0-9a-f]{4,8}[:\s]\s*[0-9a-f]{2}|[\x20-\x7e]{160}"
)


def is_machine_text(text: str) -> bool:
    """True when the text is machine output and hardly anything else; a question with a log below it is no noise."""
    if _HINT.search(text) is None:
        return False
    rest = _TRACE.sub("", text) if "Traceback" in text else text
    rest = _LINK.sub("link", rest)
    rest = _LOG_LINE.sub("", rest)
    rest = _ENCODED.sub(lambda run: "" if _is_encoded(run[0]) else run[0], rest)
    rest = _LONG_LINE.sub(lambda line: "" if _is_minified(line[0]) else line[0], rest)
    if len(rest.strip()) == len(_LINK.sub("link", text).strip()):
        return False
    return information(rest) < _LEAST_OWN


def _is_encoded(run: str) -> bool:
    return any(char.isdigit() for char in run) and any(char.isalpha() for char in run)


def _is_minified(line: str) -> bool:
    return line.count(" ") < len(line) * 0.08 and len(_CODE_SYMBOL.findall(line)) > len(line) * 0.15
