"""Rules, reading: cuts a folded text into sentences and clauses and says which of them assert something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import regex

_MAX_CLAUSE: Final = 300
"""Longer clauses are not statements about oneself, and a bound keeps every pattern cheap."""

# What is looked for comes before what must not stand in front of it: most characters are then passed over by one comparison.
_FULL_STOP: Final = (
    r"[。!?;]+[!?~]*|\n+|…+|(?=\.)(?<!\b(?:mr|mrs|ms|dr|st|prof|vs|jr|sr|inc|ltd|co|no|e\.g|i\.e|etc|u\.s))"
)
_SENTENCE_END: Final = regex.compile(_FULL_STOP + r"\.+(?=\s|$)|(?=[①-⑳])")
# "记住：1. … 2. …": a number opens an item and its full stop ends nothing. Only where there is a first item, since
# "I'm 30. I live in Leeds." looks the same.
_NUMBERED: Final = regex.compile(r"(?:^|[\s:,])1[.)、]\s*\p{L}")
_ITEM_END: Final = regex.compile(
    _FULL_STOP + r"(?<!(?:^|[\s:,])\d{1,2})\.+(?=\s|$)|(?<=[\s:,])(?=\d{1,2}[.)、]\s*\p{L})|(?=[①-⑳])"
)
# "我的车牌号：浙A12345" is one statement; other colons introduce.
_FIELD: Final = (
    r"(?:姓名|名字|地址|住址|电话|手机|手机号|号码|邮箱|生日|年龄|性别|职业|公司|单位|部门|爱好|车牌号?|工号|学号|"
    r"微信号?|qq号?|"
    r"学校|专业|星座|血型|身高|体重|过敏[源原]|忌口|籍贯|老家|城市|所在地)"
)
# The point of a name ("Ursula K. Le Guin", "J. K. Rowling") ends nothing. Read against the text, which tells capitals.
_INITIAL: Final = regex.compile(
    r"(?<![\p{L}\d'’])(?<!(?i:\b(?:vitamin|plan|option|grade|type|hepatitis|class|group|team|part|size|unit|block|section)) )"
    r"(?:(?<=\p{Lu}\p{Ll}+[ -])|(?<=\p{Lu}\. ?)|(?=\p{Lu}\. ?\p{Lu}\.))\p{Lu}\.(?<!U\.K\.|D\.C\.|L\.A\.|N\.Y\.)"
    r"(?=\s\p{Lu})(?!\s(?:I|My|We|The|It|He|She|They|You|Please|And|But|So|In|On|At|An?|This|That|What|How|Can|Could|Do|"
    r"Also|Remember|Note|Thanks|No|Not|If|When|Our|His|Her|Don|Call|Always|Never)\b)"
)
_CLAUSE_END: Final = regex.compile(
    # The first set is only for speed: what none of the alternatives begins with is passed over at once.
    r"(?=[^\p{L}\p{N}]|[我但不而并所因另同然顺今来住是在做家单已从目现体])(?:,(?:(?<!\d,)|(?!\d{3}(?!\d)))"
    rf"|(?=:)(?<!{_FIELD}):(?:(?<!\d:)(?!//)|(?![\d/]))"
    r"|——+|\s--?\s|\s[–—]\s|(?<=[a-z])—(?=[a-z])|[()]"
    r"|(?<=\p{Han})~+(?=\s*\p{Han}{2})|(?<=\p{Han})\s+(?=\p{Han})|(?<=[\p{L}\d]{2})\p{Emoji_Presentation}++(?=\s*\p{L}{2})"
    r"|(?=(?:但是|不过(?![敏去来分关瘾是如问几够])|而且|并且|所以|因为|另外|同时我|然后我|顺便)(?!呢))(?<=[^\s,]{2})"
    r"|(?=我(?:叫|是|住|在|对|不|喜欢|最|有|养|的\S{1,8}(?:是|叫)|今年|家|老家|会|习惯|每|讨厌))"
    r"(?<=[^\s,]{3}(?<!让|叫|给|帮|提醒|告诉|跟|对|和|为|请|说|住|记|得|问|教|陪|带|找|下|了我|道|是|使|把|被|替|"
    r"向|到|来|就|觉得|知道|以为|发现|里|的时候|忘了|荐|见|建议|劝|逼|要求|邀请|允许|祝|如果|要是|假如|关于|有关|"
    r"除了|属于|适合|符合|根据|按照|比|像|等|猜|将|爱|娶|嫁|认为|说过|讲过|提过|承认过?|诉过你|诉过您|"
    r"怀疑|疑心|担心|估计|生怕|怕|a|b))"
    # "我叫陈晓东今年二十八岁住在成都做前端": people introduce themselves in one breath.
    r"|(?=今年[\d一二三四五六七八九十]|来自|住在|是一[名个位]|是[做学])(?<=我叫(?:\p{Han}{2,4}|[a-z]{2,12}))"
    r"|(?=住|在|做|是|来自|家住|家在|单身|已婚|从事|目前|现在|现居)(?<=今年(?:已经|刚满?|满)?(?:\d{1,2}|[一二三四五六七八九十]{1,3})岁)"
    r"|(?=做\p{Han}{2,6}(?:[,。!\s]|$))(?<=住在\p{Han}{2,6})"
    r"|(?=体重)(?<=\d(?:cm|厘米|公分|米)?)"
    r"|\s(?:and|but|so|because|plus|also|then)\s+(?=(?:that\s+|please\s+)?(?:i|i'm|im|i've|my|we|please|don't|never|"
    r"always)\b)"
    r"|\sbut\s+(?!also\b)"
    r"|\sand\s+(?=(?:currently\s+|now\s+|also\s+|i\s+)?(?:live|work|am|was born|study|speak|have|love|like|hate|"
    r"enjoy|prefer|use|"
    r"moved|joined|quit|left|became|started|"
    r"don't|can't|usually|come from|allergic|i'm|grew|from|teach|drive|never|married|engaged|based|currently|"
    r"originally)\s)"
    r"|\s(?=living\s+in\s)(?<=\bwork(?:ing)?\s(?:at|for)\s[^,.]{2,40}\s))"
)
_LIST_HEAD: Final = regex.compile(
    r"\b(?:like|love|enjoy|hate|dislike|stand|allergic|speak|prefer|know|fan of|into|hobb\w+|play|likes?|interested|"
    r"fluent|bilingual|trilingual|conversational|proficient|allergies|eat|drink|favou?rites?)\b"
)
_LIST_ITEM: Final = regex.compile(
    r"\s*(?:and|or|&)?\s*+(?!no wait\b|wait no\b|(?:no|wait|sorry|oops|correction)\s*$)"
    r"(?!(?:i|i'm|my|we|you|he|she|it|they|please|thanks|so|but|then|what|which|who|do|can|"
    r"could|because)\b)"
    # "good wine and bad movies"; "French and a little Japanese"
    r"(?:[\p{L}\d'+#-]+(?:\s[\p{L}\d'+#-]+)?\s(?:and|or|&)\s"
    r"(?!(?:i|i'm|it|its|he|his|she|her|they|their|we|our|my|you|your|that|this|so|then)\b)"
    r"[\p{L}\d'+#-]+(?:\s[\p{L}\d'+#-]+){0,2}"
    r"|(?:a (?:little|bit)(?: bit)?(?: of)? )?+[\p{L}\d'+#-]+(?:\s[\p{L}\d'+#-]+){0,3}"
    r"(?:\s(?:and|or|&)\s(?:a (?:little|bit)(?: of)?|some|basic)(?:\s[\p{L}\d'+#-]+){1,2})?)\s*\.?"
)
_LIST_LAST: Final = regex.compile(r"(?:^|\s)(?:and|or|&)\s|(?:^|\s)etc\b")
# Languages are a list without an "and" too, and "Spanish" after "I speak English" says nothing of where one is from.
_SPOKEN_HEAD: Final = regex.compile(r"\b(?:speak|fluent|bilingual|trilingual|conversational|languages)\b")
_SPOKEN: Final = regex.compile(
    r"\s*(?:(?:and|also|some|basic|fluent|broken|conversational|a (?:little|bit)(?: bit)?(?: of)?)\s)*+"
    r"(?:english|chinese|mandarin|cantonese|spanish|french|german|italian|portuguese|russian|japanese|korean|arabic|"
    r"hindi|urdu|bengali|punjabi|tamil|telugu|turkish|dutch|swedish|norwegian|danish|finnish|polish|czech|greek|"
    r"hebrew|thai|vietnamese|indonesian|malay|swahili|persian|farsi|ukrainian|romanian|hungarian|catalan|welsh|irish)"
    r"(?:\s(?:too|as well|fluently|well|a (?:little|bit)))?\s*"
)
# A Chinese list cut by commas instead of 、; it has to run to the end of its sentence.
_LIST_HEAD_ZH: Final = regex.compile(r"(?:喜欢|爱[吃喝看玩]|讨厌|爱好[是有]|不[能]?吃|不喝|会说|擅长|精通)[^,]{1,6}$")
_LIST_ITEM_ZH: Final = regex.compile(
    r"\s*(?:和|还有|"
    r"以及)?(?![哦噢啊呃我你您他她也都请谢不但能可推帮有是就所因讨喜对在还最很真好比如怎哪什为今明昨从和而])\p{Han}{1,4}(?:(?:和|、|以及|还有)\p{Han}{1,4})?\s*"
)
_LIST_END_ZH: Final = regex.compile(r"(?:和|以及|还有)\p{Han}{1,4}\s*$")
_PLACE_HEAD: Final = regex.compile(
    r"\b(?:in|to|from|at|near|address(?: is|:))\s+(?:\d+\w?\s)?(?:\p{Lu}[\w.'-]*)(?:\s\p{Lu}[\w.'-]*){0,3}$"
)
_PLACE_TAIL: Final = regex.compile(
    r"\s*\p{Lu}[\p{L}.]*(?:\s\p{Lu}[\p{L}.]*){0,2}(?:\s(?:\d{4,6}|\p{Lu}{1,2}\d[\p{Lu}\d]?(?:\s?\d\p{Lu}{2})?))?\s*(?:\s(?:with|since|for|now|where|because|"
    r"right now|at the)\b.*)?"
)
# "我养了一只猫，叫咪咪": the name belongs to what was just introduced, not to the speaker.
_NAMED_HEAD: Final = regex.compile(
    r"(?:养了?|[只条匹]|女儿|儿子|孩子|老婆|妻子|太太|老公|丈夫|猫|狗|朋友|哥哥?|姐姐?|弟弟?|妹妹?)[^,]{0,8}$"
)
_NAMED_TAIL: Final = regex.compile(r"\s*(?:它|他|她)?(?:的?名字)?(?:叫做?|名叫)(?!我|他|她|你)\S{1,8}\s*")
_NOT_PLACE: Final = regex.compile(r"\s*(?:I|And|But|So|My|We|Please|Thanks|The|Not|Do|Can|What)\b")

# A time or scope in front of its sentence: "For the next 30 days, answer in English", "Last month, I moved to York".
_HEAD: Final = regex.compile(
    r"\s*(?:(?:and|but|so|also|please|ok|actually)\s+)?(?:(?:from|starting|as of) (?:now(?: on)?|today(?: on)?|"
    r"tomorrow(?: on)?|this \w+|next \w+|\w+day)|(?:going|moving) forward|"
    r"in (?:the )?future|(?:for|over|during|in) the (?:next|coming|rest of|remainder of) [\w ]{1,20}|(?:until|"
    r"till) [\w ]{1,20}|"
    r"for (?:now|today|the time being|(?:\d+|a|one|two|three) (?:days?|weeks?|months?))|"
    r"(?:earlier |late |early |later )?(?:last|this|next) (?:week|month|year|weekend|night|spring|summer|autumn|"
    r"fall|winter|quarter|morning|afternoon|evening|\w+day|"
    r"january|february|march|april|may|june|july|august|september|october|november|december)|yesterday|today|"
    r"tomorrow|tonight|"
    r"(?:about |around |almost )?(?:\d+|an?|one|two|three|four|five|six|ten|a few|a couple of|several) (?:day|week|"
    r"month|year)s? ago|"
    r"(?:back )?in (?:(?:january|february|march|april|may|june|july|august|september|october|november|"
    r"december)(?: (?:of )?\d{4})?|(?:19|20)\d\d)|"
    r"on (?:\w+days?|weekends?|weekdays?)|every (?:morning|day|night|evening|week|weekend|month|\w+day)|"
    r"at (?:weekends?|night)|in the (?:mornings?|evenings?|afternoons?)|"
    r"in my (?:free|spare) time|when (?:you )?(?:answer|reply|respond|writ|explain|speak|talk)\w*[\w ]{0,30}|"
    r"(?:whenever|when|every time|if) i (?:ask|say|request|mention|send|type|give|want|need|share|paste|upload|"
    r"write)\b[^,]{0,60})\s*"
)
# "My allergies: nuts" is one statement.
_LABEL: Final = regex.compile(
    r"\s*(?:(?:please )?(?:remember|note|fyi|save)(?: that)? )?(?:here(?:'s| is) )?my (?:[\p{L}-]+ ?){1,4}"
)
_DAY: Final = regex.compile(
    r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec)\w{0,6}\.? \d{1,2}(?:st|nd|rd|th)?\s*$"
)
_YEAR: Final = regex.compile(r"\s*(?:19|20)\d\d\b.*")
# "Forget my birthday and my address" is one order.
_FORGOTTEN: Final = regex.compile(r"\b(?:forget|delete|erase|remove|wipe|purge)\b.{0,30}\bmy [\p{L}' -]{2,30}$")
_MINE: Final = regex.compile(r"\s*my [\p{L}' ]{2,40}")
# "My name is not John, it's Jon" is one statement.
_DENIED: Final = regex.compile(r"\bmy [\p{L}' -]{2,30}?(?: is not|isn't|'s not| was not|wasn't) [^,]{1,30}$")
_INSTEAD: Final = regex.compile(r"\s*(?:but )?(?:it's|it is|that's) .{1,40}")
# "My sister and I are vegan" is said of both.
_TOGETHER: Final = regex.compile(r"(?:^|[\s,.])(?:both )?my (?:[\p{L}-]+ )?[\p{L}-]+$")
_BOTH: Final = regex.compile(r"\s*i (?:both |all )?(?:are|were)\b.{1,80}")
# "我住在北京，哦不，上海": what was noticed to be wrong and what it should have been.
_SLIP: Final = regex.compile(
    r"\G\s*(?:(?:哦|噢|啊|呃)不|不不+|哦?不对不对|(?:我)?(?:刚才|刚刚)?(?:说|打|写|讲|记|发)(?:错|反)字?了?|口误)\s*$"
)
_RIGHT: Final = regex.compile(r"\s*(?:应该)?(?:是|我?说的是)?(?![我你您他她它当别请])[^\s,我]{1,12}\s*")
# "各位同学，记得带身份证": whoever is called is told to remember, not the listener.
_CALLED: Final = regex.compile(
    r"(?:@\S{1,16}|(?:各位|大家|大伙儿?|同学们|家人们|兄弟们|姐妹们|朋友们|小伙伴们?|所有人)[^,我]{0,4}"
    r"|\G\s*(?:亲爱的|老婆|老公|媳妇儿?|妈妈?|爸爸?|老[妈爸]|[哥姐弟妹]{1,2}|宝贝|儿子|女儿|闺女"
    r"|(?!小[爱度艺冰智助娜微布艾慧]|老师)[小老阿]\p{Han}|\p{Han}{1,2}(?:总|姐|哥|老师|经理|师傅|主任|同学)))\s*$"
)
_REMINDED: Final = regex.compile(r"\s*[^,我]{0,8}?(?:别忘|不要忘|勿忘|记得|提醒|通知)[记掉]?+了?+(?!我).*")
_PAIRS: Final = (
    (_DAY, _YEAR),
    (_NAMED_HEAD, _NAMED_TAIL),
    (_FORGOTTEN, _MINE),
    (_DENIED, _INSTEAD),
    (_TOGETHER, _BOTH),
    (_SLIP, _RIGHT),
    (_CALLED, _REMINDED),
)
"""Heads and the tails that belong to them."""


@dataclass(frozen=True, slots=True)
class Clause:
    """`start`..`end` in the text; `colon` when it introduces what follows, `asked` when a question mark closes it."""

    start: int
    end: int
    colon: bool
    asked: bool
    last: bool


def sentences(text: str, folded: str) -> list[list[Clause]]:
    """The clauses of each sentence, in order; `folded` is the folded copy that decides, `text` tells capitals."""
    found: list[list[Clause]] = []
    begin = 0
    ends = _ITEM_END if _NUMBERED.search(folded) else _SENTENCE_END
    for match in ends.finditer(folded):
        if match[0] == "." and _INITIAL.match(text, match.start() - 1):
            continue
        _append(found, text, folded, begin, match.start(), "?" in match[0])
        begin = match.end()
    _append(found, text, folded, begin, len(folded), False)
    return found


def _append(found: list[list[Clause]], text: str, folded: str, begin: int, end: int, asked: bool) -> None:
    if not folded[begin:end].strip():
        return
    cuts: list[tuple[int, int, bool]] = []
    start = begin
    for match in _CLAUSE_END.finditer(folded, begin, end):
        if folded[start : match.start()].strip():
            cuts.append((start, match.start(), match[0] == ":"))
        elif cuts and match[0] == ":":
            cuts[-1] = (cuts[-1][0], cuts[-1][1], True)
        start = match.end()
    if folded[start:end].strip():
        cuts.append((start, end, False))
    if not cuts:
        # Commas and brackets only.
        return
    if len(cuts) > 1:
        cuts = _joined(cuts, text, folded)
    last = len(cuts) - 1
    found.append(
        [
            Clause(left, min(right, left + _MAX_CLAUSE), colon, asked and i == last, i == last)
            for i, (left, right, colon) in enumerate(cuts)
        ]
    )


def _joined(cuts: list[tuple[int, int, bool]], text: str, folded: str) -> list[tuple[int, int, bool]]:
    """Puts back together what a comma cut but is one value: "tea, coffee, and cake", "Portland, Oregon"."""
    joined: list[tuple[int, int, bool]] = []
    i = 0
    while i < len(cuts):
        left, right, colon = cuts[i]
        after = i + 1
        if after < len(cuts) and colon and _LABEL.fullmatch(folded, left, right):
            right, colon = cuts[after][1:]
            after += 1
        if after < len(cuts) and not colon and _HEAD.fullmatch(folded, left, right):
            right, colon = cuts[after][1:]
            after += 1
        for head, tail in _PAIRS:
            if after == len(cuts) or colon or head.search(folded, left, right) is None:
                continue
            if tail.fullmatch(folded, *cuts[after][:2]):
                right, colon = cuts[after][1:]
                after += 1
        if after < len(cuts) and not colon:
            if _PLACE_HEAD.search(text, left, right) and _PLACE_TAIL.fullmatch(text, *cuts[after][:2]):
                while (
                    after < len(cuts)
                    and _PLACE_TAIL.fullmatch(text, *cuts[after][:2])
                    and not _NOT_PLACE.match(text, *cuts[after][:2])
                ):
                    right, colon = cuts[after][1:]
                    after += 1
            elif _LIST_HEAD_ZH.search(folded, left, right):
                long = len(cuts) > after + 1 or _LIST_END_ZH.search(folded, *cuts[-1][:2]) is not None
                if long and all(_LIST_ITEM_ZH.fullmatch(folded, *cut[:2]) for cut in cuts[after:]):
                    right, colon = cuts[-1][1:]
                    after = len(cuts)
            elif _LIST_HEAD.search(folded, left, right):
                probe = after
                spoken = _SPOKEN_HEAD.search(folded, left, right) is not None
                while probe < len(cuts) and _LIST_ITEM.fullmatch(folded, *cuts[probe][:2]):
                    probe += 1
                    whole = probe == len(cuts) and probe > after + 1
                    if (
                        whole
                        or _LIST_LAST.search(folded, *cuts[probe - 1][:2])
                        or (spoken and _SPOKEN.fullmatch(folded, *cuts[probe - 1][:2]))
                    ):
                        right, colon = cuts[probe - 1][1:]
                        after = probe
        joined.append((left, right, colon))
        i = after
    return joined
