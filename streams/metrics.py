"""Metrics: one registry object, handed to whoever counts; names are those of the dashboards in ops/."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from processors.policy import Decision
from schemas import ChangeKind, Channel

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """All counters of one process; no label ever holds an id or content."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.turns = self._counter("memriver_turns_total", "Turns by outcome of the ingest stage", "outcome")
        self.filtered = self._counter("memriver_filtered_total", "Turns kept from the model, by reason", "reason")
        self.batches = self._counter("memriver_batches_total", "Closed batches", "closed_by")
        self.model_calls = self._counter("memriver_model_calls_total", "Model calls", "outcome")
        self.model_tokens = self._counter("memriver_model_tokens_total", "Model tokens", "kind")
        self.model_cost = self._counter("memriver_model_cost_usd_total", "Model cost in US dollars")
        self.candidates = self._counter("memriver_candidates_total", "Candidates judged", "channel", "decision")
        self.changes = self._counter("memriver_changes_total", "Versions written", "change")
        self.folds = self._counter(
            "memriver_folds_total",
            "Cells folded, by what the claims were folded onto: state, checkpoint, nothing",
            "onto",
        )
        self.feedback = self._counter("memriver_feedback_total", "Outcomes of recalls", "kind")
        self.dead_letters = self._counter("memriver_deadletters_total", "Dead letters", "stage", "reason")
        self.dead_letters_waiting = self._gauge(
            "memriver_deadletters_waiting", "Dead letters that wait for a person", "stage", "reason"
        )
        self.lost = self._counter(
            "memriver_lost_messages_total", "Messages that a log dropped before they were read", "stage", "topic"
        )
        self.retries = self._counter("memriver_retries_total", "Groups tried again", "stage")
        self.lag = self._gauge("memriver_consumer_lag", "Messages not yet acknowledged", "stage", "topic", "partition")
        self.outbox_age = self._gauge("memriver_outbox_age_seconds", "Age of the oldest unpublished message")
        self.erasure_age = self._gauge("memriver_erasure_age_seconds", "Age of the oldest erasure that is not done")
        self.erasure_seconds = Histogram(
            "memriver_erasure_seconds",
            "From asking for an erasure to its receipt",
            registry=self.registry,
            buckets=(1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 72 * 3600, 30 * 24 * 3600),
        )
        self.unextracted_age = self._gauge("memriver_unextracted_age_seconds", "Age of the oldest turn without a batch")
        self.stage_seconds = Histogram(
            "memriver_stage_seconds",
            "Time per message group",
            ("stage", "step"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        # There from the start: the first of a kind is an increase only if a zero was seen before it (ops/alerts).
        for change in ChangeKind:
            self.changes.labels(change.value)
        for channel in Channel:
            for decision in Decision:
                self.candidates.labels(channel.value, decision.value)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)
