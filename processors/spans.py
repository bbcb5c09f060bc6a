"""Spans: which characters of a turn are the speaker's own assertion, and which are quoted, pasted or injected (SPEC W5)."""

from __future__ import annotations

import re
from typing import Final

import regex

# Every pattern below is possessive or bounded, so a hostile text costs linear time.
_BLOCKS: Final = (
    # Fenced code; an unclosed fence runs to the end.
    regex.compile(r"(```|~~~)(?s:.*?)(?:\1|\Z)"),
    # Blocks that an agent framework put into the prompt: recalled memories must never be extracted again.
    regex.compile(
        r"(?is)<(memory|memories|recalled[\w-]*|system[\w-]*|context|user[_-](?:profile|memory|memories|info)|"
        r"relevant[_-]memories|knowledge|retrieved[\w-]*|documents?|instructions|tool[\w-]*|"
        r"assistant)\b[^>\n]{0,200}>"
        r".*?(?:</\1\s*>|\Z)"
    ),
    regex.compile(r"(?is)<\|im_start\|>\s*(?:system|assistant|tool).*?(?:<\|im_end\|>|\Z)"),
    regex.compile(
        r"(?im)^[ \t]*[\[【(（#*]{0,4}[ \t]*(?:"
        r"(?:here are |these are |the )?(?:recalled|relevant|retrieved|stored|saved|long[- ]term|user|past|previous)"
        r"(?: user)?(?:'s)? (?:memory|memories|facts|context)\b[^\n]{0,60}"
        r"|(?:memory|memories)(?: (?:context|about|of) [^\n]{0,60}| \(data[^\n]{0,80})?(?=[\]】:：])"
        r"|known (?:facts|information) about (?:the )?user|what (?:i|we) (?:know|remember) about (?:the )?(?:user|"
        r"you)"
        r"|(?:以下|下面|这些)?(?:是|为)?(?:关于)?(?:该|此)?用户的?(?:长期|历史|相关|已知)?(?:记忆|画像|"
        r"档案)[^\n]{0,30}"
        r"|(?:已知|相关|召回的?|检索到的?|历史|长期)(?:用户)?(?:记忆|信息|的记忆)[^\n]{0,30}"
        r")[^\n]*+(?:\n[ \t]*(?:[-*•·–]|\d{1,3}[.)、:：]|\[|#|【)[^\n]*+|\n[ \t]+[^\s][^\n]*+)*+"
    ),
    # Forwarded and answered mail: everything below the header is somebody else's.
    regex.compile(
        r"(?ims)^[ \t]*(?:-{2,}[ \t]*(?:forwarded message|original message|原始邮件|转发的?邮件)|(?:fwd?|fw|转发|"
        r"转自)[ \t]*[:：]"
        r"|[\[【](?:转发|fwd?|聊天记录)[^\]】\n]{0,20}[\]】]|begin forwarded message|on [^\n]{6,80} wrote:|"
        r"在[^\n]{4,60}写道[:：]).*\Z"
    ),
    # Stack traces and log lines.
    regex.compile(r"(?m)^Traceback \(most recent call last\):(?:\n[ \t]+[^\n]*+)*+(?:\n[^\n]*+)?"),
    regex.compile(
        r"(?im)^[ \t]*(?:\[?\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}[^\n]*+|"
        r"\[?\d{1,2}:\d{2}(?::\d{2})?\]?[ \t]*[^\s:：][^:：\n]{0,30}[:：][^\n]*+"
        r"|(?:error|warn(?:ing)?|info|debug|trace|fatal)\b[ \t]*[:\]|][^\n]*+|at [\w$.<>]+\([^\n]*+|file \"[^\n]*+|"
        r"caused by:[^\n]*+)"
    ),
    # A pasted transcript.
    regex.compile(
        r"(?im)^[ \t]*[\[(【]?(?:user|human|assistant|ai|bot|system|tool|chatgpt|gpt|claude|customer|agent|"
        r"用户|助手|客服|系统|机器人|客户|人类)[\])】]?[ \t]*[:：][^\n]*+"
    ),
    regex.compile(r"(?m)^[ \t]*[>＞][^\n]*+"),
    # WeChat's quoted reply: 「name：text」 above a dashed line.
    regex.compile(r"「[^「」\n]{1,20}[:：][^「」]{0,400}」"),
    regex.compile(r"`[^`\n]{1,400}`"),
    regex.compile(r"(?i)\b(?:https?|ftp)://[^\s，。；、）」』”]++|\bwww\.[^\s，。；、）」』”]++"),
)
# Of the lower-cased text: not to care about case costs more than all else here.
_BLOCK_HINT: Final = re.compile(
    r"[`<>＞「\[【]|~~~|://|www\.|memor|记忆|记憶|画像|档案|已知|信息|know|wrote|写道|fwd?|fw[:：]|转发|转自|"
    r"---|forward|traceback|"
    r"error|warn|info|debug|trace|fatal|caused by|\bat |file \"|\d:\d|(?:user|human|assistant|ai|bot|system|tool|"
    r"gpt|claude|"
    r"customer|agent|用户|助手|客服|系统|机器人|客户|人类)[\])】]?[ \t]*[:：]"
)

_QUOTE_MARK: Final = regex.compile(r"[“”\"「『‘＂〝]|(?<![\p{L}\p{N}])'")
_QUOTED: Final = regex.compile(
    r"“([^“”\n]{1,600})”|「([^「」\n]{1,600})」|『([^『』\n]{1,600})』|‘([^‘’\n]{1,600})’(?!\p{L})"
    r"|[\"＂〝]([^\"＂〝〞\n]{1,600})[\"＂〞]|(?<![\p{L}\p{N}])'([^'\n](?:[^'\n]|'(?=\p{L})){0,600})'(?!\p{L})"
)
_SAYS_BEFORE: Final = regex.compile(
    r"(?i)(?:说|說|问|問|写道|寫道|写|回答|回复|回覆|喊|道|讲|講|表示|告诉\S{0,4}|念|唱|叫道|提到|声称|吐槽|歌词|"
    r"歌詞|这句|这句话|这句诗|句子|台词|标题|"
    r"\b(?:said|says|say|saying|asked|asks|wrote|writes|replied|told (?:me|us|him|her|them)|tells me|texted|tweeted|"
    r"posted|shouted|"
    r"whispered|claims?|claimed|answered|goes|went|quotes?|sentence|phrase|line|lyrics?|song|titled|was like|"
    r"is like))"
    r"(?:过|了|着|是|到|的|that)?[ \t]*[:：,，]?[ \t]*$"
)
_SAYS_AFTER: Final = regex.compile(
    r"(?i)^[ \t]*[,，]?[ \t]*(?:(?:he|she|they|it|[a-z]+|my \w+|the \w+) (?:said|says|asked|wrote|replied|told|"
    r"answered|whispered)\b"
    r"|(?:said|says|asked|wrote|replied) |\S{1,6}(?:说|說|问|問|写道|回答|喊道|道)|(?:这|這)(?:句|段|首|个|是|里)|"
    r"(?:怎么|如何|什么意思|是什么)|in \w+\??$|means?\b|翻译|的(?:英文|中文|意思))"
)
# A quoted sentence in the first person is somebody's words, unless the speaker orders it to be kept or gives a name.
_FIRST_PERSON: Final = regex.compile(r"(?i)我|俺|\bi\b|\bi'm\b|\bmy\b")
_KEEPS_BEFORE: Final = regex.compile(
    r"(?i)(?:记住|記住|记一下|記一下|记下|記下|记得|記得|别忘了?|備註|备注|牢记|叫|名字是|昵称是|remember(?: that|"
    r" this)?|don't forget(?: that)?|note(?: that| down)?|"
    r"keep in mind(?: that)?|write (?:this |it )?down|save(?: this)?|store(?: this)?|called|named|name is|call me|"
    r"以后(?:都)?说)[ \t]*[:：,，]?[ \t]*$"
)
# Reported speech without quotation marks: "他说：我住在北京", "She said, I live in …". The speaker's own "我说：" stays.
_REPORTED: Final = regex.compile(
    r"(?i)(?:(?<![我俺是想来再话你])(?:说|說|问|問|写道|回复|回答|表示)(?:道|过|了)?[ \t]*[:：]"
    r"|(?:他|她|它|TA|人家|有人|朋友|同事|老师|老板|客户|爸|妈|哥|姐|弟|妹)(?:\S{0,4})(?:说|說|问|回)[ \t]*[:：,，]"
    r"|(?<!\bi )(?<!\bi've )(?<!\bi have )\b(?:said|says|wrote|replied|asked|told me|"
    r"texted me)[ \t]*[:,])([^\n。！？!?]{1,400})"
)
_REPORT_HINT: Final = regex.compile(
    r"(?i)[说說问問道复答示回][道过了]?[ \t]*[:：,，]|(?:said|says|wrote|replied|asked|me)[ \t]*[:,]"
)


def own_words(text: str) -> str:
    """The text with everything that is not the speaker's own assertion blanked out; always of the same length.

    Blanked are: code, quoted lines, reported speech, forwarded mail, pasted transcripts and logs, URLs, and blocks that
    a framework injected (recalled memories, system prompts), so that a memory never feeds on itself. A quotation that
    the speaker orders to be remembered, or that is a name, is content and stays. Newlines are kept.
    """
    out = text
    if _BLOCK_HINT.search(out.lower()):
        for pattern in _BLOCKS:
            out = pattern.sub(_blank, out)
    if _QUOTE_MARK.search(out):
        out = _without_quotations(out)
    if _REPORT_HINT.search(out):
        out = _REPORTED.sub(_blank_first_group, out)
    return out


def _blank_text(piece: str) -> str:
    if "\n" not in piece:
        return " " * len(piece)
    return "\n".join(" " * len(line) for line in piece.split("\n"))


def _blank(match: regex.Match[str]) -> str:
    return _blank_text(match[0])


def _blank_first_group(match: regex.Match[str]) -> str:
    return match[0][: match.start(1) - match.start()] + " " * len(match[1])


def _without_quotations(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for match in _QUOTED.finditer(text):
        before = text[max(0, match.start() - 24) : match.start()]
        if _KEEPS_BEFORE.search(before):
            continue
        after = text[match.end() : match.end() + 24]
        if _SAYS_BEFORE.search(before) or _SAYS_AFTER.search(after) or _FIRST_PERSON.search(match[0]):
            pieces.append(text[done : match.start()])
            pieces.append(" " * len(match[0]))
            done = match.end()
    if not pieces:
        return text
    pieces.append(text[done:])
    return "".join(pieces)
