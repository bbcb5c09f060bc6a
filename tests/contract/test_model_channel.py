"""Tests, contract: the model channel against a real HTTP server that misbehaves in every reported way (FIELD_REPORTS 1–10)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from processors.exceptions import PoisonError, TransientError
from processors.extraction.plan import Limits
from processors.extraction.schema import answer_schema
from processors.spans import own_words
from processors.times import resolve
from schemas import ExtractionBatch, SourceKind
from streams.breaker import Breaker, BreakerOpen, BreakerState
from streams.extraction import BatchOutcome, ExtractionResult, extract_batch
from streams.model import ModelConfig, OpenAIChatModel, OutputMode
from streams.pricing import BudgetExhausted, Price, RollingBudget
from tests.doubles.model_replies import Behaviour
from tests.doubles.model_server import ModelServer
from tests.unit.extraction.conversation import said

BATCH = said("我住在成都", "我对花生过敏", "我喜欢火锅", "今天好累啊", "我叫小明")
VALUES = ["成都", "花生", "火锅", "小明"]


class Patience:
    """Stands for the clock and the sleep: time passes only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Channel:
    """One server, one adapter, and what they were seen to do."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.patience = Patience()
        self.labels: Counter[str] = Counter()
        self.breaker = Breaker(self.patience.clock, threshold=4, cooldown=15.0)
        self.models: list[OpenAIChatModel] = []
        self.model = self.build()

    def build(self, budget: RollingBudget | None = None, **config: Any) -> OpenAIChatModel:
        """Another adapter, with other settings."""
        settings: dict[str, Any] = {"base_url": self.server.base_url, "model": "double-1", "timeout": 5.0} | config
        model = OpenAIChatModel(
            ModelConfig(**settings),
            json_schema=answer_schema(),
            breaker=self.breaker,
            rng=random.Random(7),
            budget=budget,
            sleep=self.patience.sleep,
        )
        self.models.append(model)
        self.model = model
        return model

    async def extract(self, batch: ExtractionBatch = BATCH, limits: Limits | None = None) -> ExtractionResult:
        return await extract_batch(
            batch,
            self.model,
            own_words=own_words,
            resolve_times=resolve,
            limits=limits,
            observe=lambda label: self.labels.update([label]),
        )


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
async def channel(server: ModelServer) -> AsyncIterator[Channel]:
    channel = Channel(server)
    yield channel
    for model in channel.models:
        await model.aclose()


def values(result: ExtractionResult) -> list[str]:
    return [candidate.value for candidate in result.candidates]


async def test_a_batch_of_five_turns_is_one_call(channel: Channel) -> None:
    result = await channel.extract()
    assert values(result) == VALUES
    assert result.outcome is BatchOutcome.EXTRACTED
    assert result.calls == len(channel.server.calls) == 1
    assert result.candidates[0].writer == "model:double-1:extract_v1_zh"
    assert all(candidate.source_kind is SourceKind.USER_STATEMENT for candidate in result.candidates)
    (reply,) = result.raw_replies
    assert (reply.prompt_version, reply.model, reply.finish_reason) == ("extract_v1_zh", "double-1", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (100, 50)
    assert "成都" in reply.text
    assert "成都" not in repr(result.raw_replies)


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour.FENCES,
        Behaviour.PROSE_AROUND,
        Behaviour.THINK,
        Behaviour.THINK_UNCLOSED,
        Behaviour.THINK_INSIDE,
        Behaviour.REASONING_ONLY,
        Behaviour.TWO_ANSWERS,
        Behaviour.BARE_LIST,
        Behaviour.TRAILING_COMMA,
        Behaviour.WRONG_TYPES,
        Behaviour.WRONG_LANGUAGE,
        Behaviour.HUGE,
    ],
)
async def test_a_wrapped_answer_is_read_with_one_call(channel: Channel, behaviour: Behaviour) -> None:
    channel.server.script(behaviour)
    result = await channel.extract()
    assert values(result) == VALUES
    assert (result.calls, result.failed) == (1, ())


async def test_a_sentence_in_the_wrong_language_is_replaced_by_what_was_said(channel: Channel) -> None:
    channel.server.script(Behaviour.WRONG_LANGUAGE)
    result = await channel.extract()
    assert [candidate.text for candidate in result.candidates] == [
        "我住在成都",
        "我对花生过敏",
        "我喜欢火锅",
        "我叫小明",
    ]


@pytest.mark.parametrize(
    ("behaviour", "kept", "reasons"),
    [
        (Behaviour.ONE_BAD_ITEM, VALUES, {"turn:wrong_type": 1, "not_an_object": 1}),
        (Behaviour.COPIED_EXAMPLE, VALUES, {"placeholder": 1}),
        (Behaviour.DUPLICATES, VALUES, {"duplicate": 8}),
    ],
)
async def test_bad_items_are_rejected_one_by_one(
    channel: Channel, behaviour: Behaviour, kept: list[str], reasons: dict[str, int]
) -> None:
    channel.server.script(behaviour)
    result = await channel.extract()
    assert values(result) == kept
    assert Counter(rejected.reason for rejected in result.rejected) == reasons
    assert result.calls == 1


async def test_an_answer_that_cites_only_turns_that_were_not_shown_is_asked_again(channel: Channel) -> None:
    """It answers another question; what it would have been told must not count as nothing to remember."""
    channel.server.script(Behaviour.WRONG_ALIAS, Behaviour.OK)
    result = await channel.extract()
    assert (values(result), result.calls, result.failed) == (VALUES, 2, ())


async def test_an_empty_list_closes_the_batch_as_done(channel: Channel) -> None:
    channel.server.script(Behaviour.EMPTY)
    result = await channel.extract()
    assert (result.outcome, result.calls, result.failed) == (BatchOutcome.EMPTY, 1, ())
    assert channel.labels == {"empty": 1}


async def test_a_batch_with_nothing_to_show_costs_no_call(channel: Channel) -> None:
    result = await channel.extract(said("<memory>我住在北京</memory>"))
    assert (result.outcome, result.calls) == (BatchOutcome.EMPTY, 0)


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour.PROSE,
        Behaviour.BLANK,
        Behaviour.ERROR_WITH_200,
        Behaviour.HTML_WITH_200,
    ],
)
async def test_an_unreadable_reply_is_asked_for_again_plainer_and_then_given_up(
    channel: Channel, behaviour: Behaviour
) -> None:
    channel.server.default = behaviour
    result = await channel.extract()
    assert result.outcome is BatchOutcome.UNPARSABLE
    assert channel.labels == {"unparsable": 3}
    assert [call.body["response_format"]["type"] for call in channel.server.calls] == [
        "json_schema",
        "json_schema",
        "json_object",
    ]
    reminded = ["不是可以解析的 JSON" in call.user for call in channel.server.calls]
    assert reminded == [False, True, True]
    (failed,) = result.failed
    assert len(failed.turns) == 5
    assert failed.raw == result.raw_replies[-1].text
    # One batch's trouble is not the endpoint's capability.
    assert channel.model.output_mode is OutputMode.JSON_SCHEMA


async def test_the_second_answer_counts_when_the_first_is_unreadable(channel: Channel) -> None:
    channel.server.script(Behaviour.PROSE)
    result = await channel.extract()
    assert (values(result), result.outcome, result.calls) == (VALUES, BatchOutcome.EXTRACTED, 2)
    assert channel.labels == {"unparsable": 1, "extracted": 1}


async def test_a_bottomless_reply_is_cut_off_not_nothing(channel: Channel) -> None:
    channel.server.script(Behaviour.NESTED)
    result = await channel.extract()
    assert values(result) == VALUES
    assert channel.labels["empty"] == 0


async def test_a_cut_off_answer_splits_the_batch(channel: Channel) -> None:
    channel.server.script(Behaviour.TRUNCATED)
    result = await channel.extract()
    assert (values(result), result.calls) == (VALUES, 3)
    assert [len(reply.turn_ids) for reply in result.raw_replies] == [5, 2, 3]


async def test_a_model_that_is_always_cut_off_stops_at_the_budget_of_calls(channel: Channel) -> None:
    channel.server.default = Behaviour.TRUNCATED
    result = await channel.extract(limits=Limits(calls=7))
    assert result.calls == len(channel.server.calls) == 7
    assert result.outcome is BatchOutcome.UNPARSABLE
    turns = [turn.turn_id for piece in result.failed for turn in piece.turns]
    assert len(turns) == len(set(turns))
    assert {piece.reason for piece in result.failed} == {"truncated", "call_budget"}


@pytest.mark.parametrize("behaviour", [Behaviour.TOO_LONG, Behaviour.CONTENT_POLICY, Behaviour.REFUSAL])
async def test_a_refusal_costs_only_the_turn_that_causes_it(channel: Channel, behaviour: Behaviour) -> None:
    batch = said("我住在成都", "我喜欢火锅", f"我叫小明 #model:{behaviour}")
    result = await channel.extract(batch)
    assert values(result) == ["成都", "火锅"]
    (failed,) = result.failed
    assert [turn.turn_id for turn in failed.turns] == ["t3"]
    assert result.outcome is BatchOutcome.UNPARSABLE
    assert channel.breaker.state is BreakerState.CLOSED


async def test_a_bad_request_is_not_repeated(channel: Channel) -> None:
    channel.server.script(Behaviour.BAD_REQUEST)
    result = await channel.extract()
    assert [piece.reason for piece in result.failed] == ["bad_request"]
    assert result.calls == 1


class TestProviderDown:
    """FIELD_REPORTS 7: never "no facts"."""

    @pytest.mark.parametrize(
        "behaviour",
        [
            Behaviour.RATE_LIMITED,
            Behaviour.RATE_LIMITED_SILENT,
            Behaviour.RATE_LIMIT_WITH_200,
            Behaviour.SERVER_ERROR,
            Behaviour.RESET,
        ],
    )
    async def test_a_hiccup_is_retried_within_the_call(self, channel: Channel, behaviour: Behaviour) -> None:
        channel.server.script(behaviour, behaviour)
        result = await channel.extract()
        assert (values(result), result.calls) == (VALUES, 1)
        assert len(channel.server.calls) == 3
        assert len(channel.patience.waits) == 2

    @pytest.mark.parametrize("behaviour", [Behaviour.HANG, Behaviour.SLOW_DRIP])
    async def test_an_answer_that_does_not_come_or_does_not_end_is_given_up(
        self, channel: Channel, behaviour: Behaviour
    ) -> None:
        channel.build(timeout=1.0)
        channel.server.script(behaviour)
        assert values(await channel.extract()) == VALUES
        assert channel.server.behaviours == [behaviour, Behaviour.OK]

    async def test_retry_after_is_honoured(self, channel: Channel) -> None:
        channel.server.retry_after = "7"
        channel.server.script(Behaviour.RATE_LIMITED)
        await channel.extract()
        assert 7.0 <= channel.patience.waits[0] <= 7.5

    async def test_a_long_retry_after_is_not_waited_for_inside_the_call(self, channel: Channel) -> None:
        channel.server.retry_after = "3600"
        channel.server.script(Behaviour.RATE_LIMITED)
        with pytest.raises(TransientError) as caught:
            await channel.extract()
        assert caught.value.retry_after == 3600
        assert channel.patience.waits == []

    async def test_waits_grow_and_are_jittered(self, channel: Channel) -> None:
        channel.server.default = Behaviour.SERVER_ERROR
        with pytest.raises(TransientError):
            await channel.extract()
        assert len(channel.patience.waits) == 3
        assert all(wait <= 0.5 * 2**number for number, wait in enumerate(channel.patience.waits))
        assert len(set(channel.patience.waits)) == 3

    async def test_the_batch_waits_behind_the_breaker_and_is_extracted_when_the_provider_is_back(
        self, channel: Channel
    ) -> None:
        channel.server.script(*[Behaviour.SERVER_ERROR] * 4)
        with pytest.raises(TransientError):
            await channel.extract()
        assert channel.breaker.state is BreakerState.OPEN
        with pytest.raises(BreakerOpen) as caught:
            await channel.extract()
        assert len(channel.server.calls) == 4
        assert channel.labels == {"provider_down": 2}
        channel.patience.now += caught.value.retry_after or 0.0
        assert values(await channel.extract()) == VALUES
        assert channel.breaker.state is BreakerState.CLOSED

    async def test_a_wrong_key_makes_batches_wait_rather_than_die(self, channel: Channel) -> None:
        channel.server.script(Behaviour.UNAUTHORIZED)
        with pytest.raises(TransientError) as caught:
            await channel.extract()
        assert caught.value.retry_after == 60.0
        assert len(channel.server.calls) == 1

    async def test_no_server_at_all_is_provider_down(self, channel: Channel) -> None:
        channel.build(base_url="http://127.0.0.1:9/v1")
        with pytest.raises(TransientError):
            await channel.extract()

    async def test_errors_do_not_repeat_what_the_provider_wrote(self, channel: Channel) -> None:
        channel.server.script(Behaviour.CONTENT_POLICY)
        with pytest.raises(PoisonError) as caught:
            await channel.model.complete("s", "我住在成都", max_tokens=10)
        assert "management policy" not in str(caught.value)


class TestCapability:
    """FIELD_REPORTS 10: json_schema, then json_object, then text."""

    @pytest.mark.parametrize(
        ("behaviour", "mode", "calls"),
        [
            (Behaviour.NO_JSON_SCHEMA, OutputMode.JSON_OBJECT, 2),
            (Behaviour.NO_RESPONSE_FORMAT, OutputMode.TEXT, 3),
            (Behaviour.NO_MAX_TOKENS, OutputMode.JSON_SCHEMA, 2),
        ],
    )
    async def test_what_the_endpoint_does_not_know_is_dropped_once_and_remembered(
        self, channel: Channel, behaviour: Behaviour, mode: OutputMode, calls: int
    ) -> None:
        channel.server.default = behaviour
        assert values(await channel.extract()) == VALUES
        assert len(channel.server.calls) == calls
        assert channel.model.output_mode is mode
        await channel.extract()
        assert len(channel.server.calls) == calls + 1
        assert channel.patience.waits == []
        assert channel.breaker.state is BreakerState.CLOSED

    @pytest.mark.parametrize("mode", list(OutputMode))
    async def test_the_richest_mode_is_a_setting(self, channel: Channel, mode: OutputMode) -> None:
        channel.build(output=mode)
        await channel.extract()
        asked = channel.server.calls[0].body.get("response_format", {}).get("type", "text")
        assert asked == mode

    async def test_the_schema_is_sent_in_schema_mode(self, channel: Channel) -> None:
        await channel.extract()
        sent = channel.server.calls[0].body["response_format"]["json_schema"]
        assert sent == {"name": "memories", "schema": answer_schema(), "strict": True}


async def test_calls_tokens_and_cost_are_counted(channel: Channel) -> None:
    model = channel.build(prices={"double": Price(prompt=2.0, completion=8.0)})
    await channel.extract()
    await channel.extract()
    assert (model.spending.calls, model.spending.prompt_tokens, model.spending.completion_tokens) == (2, 200, 100)
    assert model.spending.cost == pytest.approx(2 * (100 * 2.0 + 50 * 8.0) / 1_000_000)


async def test_a_used_up_token_budget_makes_the_batch_wait(channel: Channel) -> None:
    channel.build(budget=RollingBudget(10_000, 3_600.0, channel.patience.clock))
    budget_free = 0
    with pytest.raises(BudgetExhausted) as caught:
        for _ in range(200):
            await channel.extract()
            budget_free += 1
    assert budget_free == len(channel.server.calls) > 0
    assert channel.labels["over_budget"] == 1
    channel.patience.now += caught.value.retry_after or 0.0
    await channel.extract()


async def test_a_second_extraction_gives_the_same_candidates(channel: Channel) -> None:
    one, two = await channel.extract(), await channel.extract()
    assert one.candidates == two.candidates


async def test_a_real_client_can_list_models_and_embed(server: ModelServer) -> None:
    async with openai.AsyncOpenAI(api_key="none", base_url=server.base_url, max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == ["double-1"]
        answer = await client.embeddings.create(model="e", input=["成都", "成都", "西安"])
    one, same, other = (row.embedding for row in answer.data)
    assert one == same != other
    assert sum(value * value for value in one) == pytest.approx(1.0, abs=1e-4)
    assert server.requests == {"/models": 1, "/embeddings": 1}
