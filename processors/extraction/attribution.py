"""Extraction: about whom a quoted clause speaks; a relative's address is never the user's (FIELD_REPORTS 12)."""

from __future__ import annotations

import regex

SELF = "user"

_SELF_WORDS = frozenset(
    ("user", "the user", "self", "me", "i", "myself", "speaker", "the speaker", "我", "用户", "本人", "自己", "我自己")
)
_PRONOUNS = frozenset(
    (
        "he",
        "she",
        "they",
        "him",
        "her",
        "them",
        "it",
        "someone",
        "somebody",
        "他",
        "她",
        "它",
        "他们",
        "她们",
        "有人",
        "别人",
    )
)

_KIN_ZH = (
    "妈妈|老妈|妈|母亲|爸爸|老爸|爸|父亲|父母|爸妈|老婆|老公|妻子|丈夫|太太|先生|爱人|对象|女朋友|男朋友|女友|男友|"
    "儿子|女儿|孩子|宝宝|哥哥|大哥|哥|弟弟|弟|姐姐|姐|妹妹|妹|爷爷|奶奶|外公|外婆|姥姥|姥爷|公公|婆婆|岳父|岳母|"
    "叔叔|阿姨|舅舅|姑姑|表哥|表弟|表姐|表妹|堂哥|堂弟|堂姐|堂妹|侄子|侄女|同事|朋友|同学|室友|老板|领导|上司|"
    "邻居|客户(?!端)|老师|闺蜜|哥们|房东|助理|医生"
)
_KIN_EN = (
    "mom|mum|mother|dad|father|parents|wife|husband|partner|spouse|girlfriend|boyfriend|fianc[eé]e?|son|daughter|kids?|"
    "child|children|brother|sister|grandmother|grandma|grandfather|grandpa|aunt|uncle|cousin|nephew|niece|"
    "mother-in-law|father-in-law|friend|roommate|flatmate|colleague|coworker|co-worker|boss|manager|neighbou?r|"
    "client|customer|teacher|landlord|assistant|doctor"
)
_LEAD = r"^[\s\p{P}]*(?:(?:其实|而且|但是|不过|因为|所以|well|so|but|and|also|actually)[\s,]*)?"
_OTHER_ZH = regex.compile(
    rf"{_LEAD}(?:(?:我|咱|俺)们?(?:的|家)?(?P<kin>{_KIN_ZH})|(?P<pronoun>他们?|她们?))(?P<rest>.*)"
)
_OTHER_EN = regex.compile(
    rf"{_LEAD}(?:(?:my|our)\s+(?:\w+\s+)?(?P<kin>{_KIN_EN})|(?P<pronoun>he|she|they))\b(?P<rest>.*)", regex.IGNORECASE
)
_MYSELF = regex.compile(r"[我咱俺]|\b(?:i|me|we|us)\b", regex.IGNORECASE)
_CLAUSES = regex.compile(
    r"[，。；！？,;!?\n]+|\.\s+|\s+(?:and|but|while)\s+(?=(?:i|my|he|she|they|we)\b)", regex.IGNORECASE
)

# Known attributes in which the user speaks of others about themselves: "my daughter is five" is the user's family.
ABOUT_OTHERS = frozenset({"family", "pet", "event", "plan", "task", "goal", "note", "lesson", "instruction"})


def subject_named(subject: str, *own_names: str) -> str | None:
    """`user`, the name of the other person, or None when nobody can be told from it ("he")."""
    name = subject.strip()
    plain = name.casefold()
    if plain in _SELF_WORDS or plain in {own.casefold() for own in own_names if own}:
        return SELF
    return None if plain in _PRONOUNS or not name else name


def subject_spoken_of(quote: str, value: str) -> str | None:
    """Who the clause with the value begins with: `user` unless it is somebody else; None for an unnamed "he".

    Only the plain case is decided, a clause that opens with "my sister" or "she" and does not come back to the speaker
    before the value: "my sister and I live in Rome" and "我妈让我戒烟" stay the user's.
    """
    clauses = [clause for clause in _CLAUSES.split(quote) if clause and clause.strip()]
    clause = next((clause for clause in clauses if value and value.casefold() in clause.casefold()), quote)
    match = _OTHER_ZH.match(clause) or _OTHER_EN.match(clause)
    if match is None:
        return SELF
    before_value = match["rest"].casefold().split(value.casefold(), 1)[0] if value else match["rest"]
    if _MYSELF.search(before_value):
        return SELF
    return match["kin"] or None
