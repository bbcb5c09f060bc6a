"""Contract: the floor — with the smallest embedder, what is known is found in both languages, and nonsense finds nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from processors.access import Grant, OwnerRef, Principal, PrincipalKind, Scope, authorise_all
from processors.policy import PolicyGate, PolicySettings
from recall.request import EmptyReason, RecallRequest, RecallResult
from recall.screening import TurnScreen
from recall.service import RecallService
from schemas import Category, Memory, MemoryType, OwnerKind
from sinks.embedders import make_embedder
from sinks.truth import Truth, make_engine, memories
from sinks.vectors import open_vectors
from sinks.vectors.collection import OneCollection
from streams.projection import VectorProjection
from tests.doubles.records import at, memory

ANNA = OwnerRef(OwnerKind.USER, "anna")


def held(name: str, attribute: str, value: str, text: str, language: str, **fields: object) -> Memory:
    episode = attribute == "event"
    given = {
        "attribute": attribute,
        "value": value,
        "text": text,
        "language": language,
        "owner": "anna",
        "namespace": "user/anna/profile",
        "cardinality": "single" if attribute in ("residence", "employer") else "multi",
        "type": MemoryType.EPISODIC if episode else MemoryType.SEMANTIC,
        "category": Category.EVENT if episode else Category.FACT,
    }
    return memory(f"{language}-{name}", **(given | fields))


ENGLISH = (
    held("home", "residence", "Hamburg", "I live in Hamburg", "en"),
    held("job", "employer", "Siemens", "I work at Siemens as a nurse", "en"),
    held("nuts", "allergy", "peanuts", "I'm allergic to peanuts", "en"),
    held("tea", "likes", "green tea", "I like green tea in the morning", "en"),
    held("dog", "pet", "a dog called Rex", "I have a dog called Rex", "en"),
    held("flight", "event", "flew to Lisbon", "I flew to Lisbon for the ceramics fair", "en"),
    held("bike", "note", "the blue bicycle is in the cellar", "the blue bicycle is in the cellar", "en"),
    held("piano", "goal", "learn the piano", "I want to learn the piano this year", "en"),
    held("bob", "residence", "Oslo", "Bob lives in Oslo", "en", subject="Bob"),
    held("lena", "note", "Lena collects old maps", "Lena collects old maps", "en"),
)
CHINESE = (
    held("home", "residence", "杭州", "我住在杭州", "zh"),
    held("job", "employer", "西湖医院", "我在西湖医院当护士", "zh"),
    held("nuts", "allergy", "花生", "我对花生过敏", "zh"),
    held("tea", "likes", "绿茶", "我早上喜欢喝绿茶", "zh"),
    held("dog", "pet", "豆豆", "我养了一只叫豆豆的狗", "zh"),
    held("flight", "event", "飞去成都", "我上个月飞去成都看陶艺展", "zh"),
    held("bike", "note", "蓝色自行车在地下室", "蓝色自行车放在地下室", "zh"),
    held("piano", "goal", "学钢琴", "我今年想学钢琴", "zh"),
    held("wang", "residence", "厦门", "王芳住在厦门", "zh", subject="王芳"),
    held("laozhang", "note", "老张收集旧地图", "老张收集旧地图", "zh"),
)
ASKED = (
    (ENGLISH, "Where does Anna live?", "I live in Hamburg"),
    (ENGLISH, "Where do I live?", "I live in Hamburg"),
    (ENGLISH, "Where does Bob live?", "Bob lives in Oslo"),
    (ENGLISH, "Who lives in Oslo?", "Bob lives in Oslo"),
    (ENGLISH, "What am I allergic to?", "I'm allergic to peanuts"),
    (ENGLISH, "May I eat peanuts?", "I'm allergic to peanuts"),
    (ENGLISH, "Which tea do I like?", "I like green tea in the morning"),
    (ENGLISH, "What is my dog called?", "I have a dog called Rex"),
    (ENGLISH, "When did I fly to Lisbon?", "I flew to Lisbon for the ceramics fair"),
    (ENGLISH, "Where is the blue bicycle?", "the blue bicycle is in the cellar"),
    (ENGLISH, "What does Lena collect?", "Lena collects old maps"),
    (CHINESE, "我住在哪里？", "我住在杭州"),
    (CHINESE, "王芳住在哪里？", "王芳住在厦门"),
    (CHINESE, "谁住在厦门？", "王芳住在厦门"),
    (CHINESE, "我对什么过敏？", "我对花生过敏"),
    (CHINESE, "我能吃花生吗？", "我对花生过敏"),
    (CHINESE, "我喜欢喝什么茶？", "我早上喜欢喝绿茶"),
    (CHINESE, "我的狗叫什么名字？", "我养了一只叫豆豆的狗"),
    (CHINESE, "我什么时候飞去成都的？", "我上个月飞去成都看陶艺展"),
    (CHINESE, "蓝色自行车在哪儿？", "蓝色自行车放在地下室"),
    (CHINESE, "老张收集什么？", "老张收集旧地图"),
)
NONSENSE = (
    (ENGLISH, "What is the boiling point of tungsten?"),
    (ENGLISH, "quarterly zebra turbines"),
    (ENGLISH, "How many moons does Jupiter have?"),
    (ENGLISH, "Explain the third law of thermodynamics"),
    (ENGLISH, "asdf qwer zxcv"),
    (ENGLISH, "Who won the football cup in 1974?"),
    (CHINESE, "钨的沸点是多少？"),
    (CHINESE, "木星有几颗卫星？"),
    (CHINESE, "解释一下热力学第三定律"),
    (CHINESE, "量子计算机的纠错码"),
    (CHINESE, "一九七四年世界杯冠军是谁？"),
    (CHINESE, "啊嗯哦呃"),
)


@pytest.fixture(scope="module")
def service(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecallService]:
    directory = tmp_path_factory.mktemp("floor")
    shutil.copyfile(sqlite_template, directory / "truth.db")
    truth = Truth(make_engine(f"sqlite:///{directory / 'truth.db'}"))
    embedder = make_embedder("hashing")
    store = open_vectors(f"edge:{directory}", prefix="memories", model=embedder.model, dimension=embedder.dimension)
    store.ensure()
    one = OneCollection(store, embedder)
    for group in (ENGLISH, CHINESE):
        rows = [(item, item.id[:32], item.id[:32]) for item in group]
        truth.run(lambda connection, rows=rows: memories.save(connection, rows))
        VectorProjection(one).write(group)
    screen = TurnScreen(PolicyGate(PolicySettings(), b"a key for the tests"))
    yield RecallService(truth, one, screen=screen)
    store.close()
    truth.close()


def ask(service: RecallService, query: str) -> RecallResult:
    agent = Principal("acme", PrincipalKind.AGENT, "crm", "k", frozenset({Scope.READ}), (Grant(ANNA.kind, ANNA.id),))
    reaches = authorise_all(agent, Scope.READ, [ANNA], at(60))
    return service.recall(RecallRequest(reaches, query, at(60), explain=True))


@pytest.mark.parametrize(("group", "query", "answer"), ASKED, ids=[query for _group, query, _answer in ASKED])
def test_what_is_known_is_found_first(
    service: RecallService, group: tuple[Memory, ...], query: str, answer: str
) -> None:
    result = ask(service, query)
    said = [item.memory.text for item in result.items if item.memory is not None]
    mine = [text for text in said if text in {item.text for item in group}]
    assert mine[:1] == [answer], said


@pytest.mark.parametrize("query", [query for _group, query in NONSENSE])
def test_what_nobody_ever_said_finds_nothing_and_says_so(service: RecallService, query: str) -> None:
    result = ask(service, query)
    assert [item.memory.text for item in result.items if item.memory is not None] == []
    assert (result.empty_reason, bool(result.fallback)) == (EmptyReason.NOTHING_RELEVANT, True)


def test_every_result_says_what_proposed_it(service: RecallService) -> None:
    def sources(query: str) -> dict[str, tuple[str, ...]]:
        return {item.memory.text: item.sources for item in ask(service, query).items if item.memory is not None}

    assert sources("Where do I live?")["I live in Hamburg"] == ("slot", "dense", "keyword")
    elsewhere = sources("What is Bob's residence?")
    assert elsewhere["Bob lives in Oslo"] == ("slot", "triple", "dense", "keyword")
    assert "I live in Hamburg" not in elsewhere, "the owner's home is no answer to where somebody else lives"
    assert sources("豆豆")["我养了一只叫豆豆的狗"] == ("triple", "dense", "keyword")
