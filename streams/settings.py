"""Configuration: one object, read from `MEMRIVER_*` variables and an optional `.env`; nothing else reads the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self, get_args

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from processors.resolution.reconcile import BEHIND

StageName = Literal[
    "ingest", "extract", "resolve", "feedback", "clock", "expiry", "summaries", "reindex", "erasure", "bury"
]
ALL_STAGES: tuple[StageName, ...] = get_args(StageName)


class Settings(BaseSettings):
    """Everything that can be set. Seconds, bytes and counts as the names say."""

    model_config = SettingsConfigDict(
        env_prefix="MEMRIVER_", env_file=".env", extra="ignore", populate_by_name=True, hide_input_in_errors=True
    )

    # where things are
    kafka_bootstrap: str = "localhost:9092"
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    kafka_sasl_username: str = ""
    kafka_sasl_password: SecretStr = SecretStr("")
    kafka_ssl_cafile: Path | None = None
    database_url: SecretStr = SecretStr("sqlite:///memriver.db")
    qdrant_url: str = ""
    qdrant_api_key: SecretStr = SecretStr("")
    data_dir: Path = Path("memriver-data")
    topic_prefix: str = ""

    # the model channel; off while no base URL is set
    model_base_url: str = Field(default="", validation_alias=AliasChoices("MEMRIVER_MODEL_BASE_URL", "OPENAI_BASE_URL"))
    model_api_key: SecretStr = Field(
        default=SecretStr(""), validation_alias=AliasChoices("MEMRIVER_MODEL_API_KEY", "OPENAI_API_KEY")
    )
    model_name: str = "gpt-4o-mini"
    model_structured: Literal["json_schema", "json_object", "text"] = "json_schema"
    model_timeout_seconds: float = 60.0
    model_concurrency: int = Field(default=64, ge=1)
    model_attempts: int = Field(default=5, ge=1, description="attempts at a batch before it is dead-lettered")
    model_token_budget_per_day: int = Field(default=0, ge=0, description="0: no limit")
    model_price_prompt: float = Field(default=0.0, ge=0, description="US dollars per million prompt tokens")
    model_price_completion: float = Field(default=0.0, ge=0, description="US dollars per million completion tokens")

    embedder: str = "hashing"
    embedder_base_url: str = ""
    embedder_api_key: SecretStr = SecretStr("")
    # of the other model, while a re-embedding has two in use; as above if left out
    embedder_other_base_url: str = ""
    embedder_other_api_key: SecretStr = SecretStr("")

    # micro-batches (SPEC W5)
    batch_turns: int = Field(default=5, ge=1)
    batch_seconds: float = Field(default=30.0, gt=0)
    batch_tokens: int = Field(default=4000, ge=1)

    # policy (SPEC W7) and resolution (SPEC W9)
    confidence_floor: float = Field(default=0.5, ge=0, le=1)
    hash_key: SecretStr = SecretStr("memriver-development-hash-key")
    master_key: SecretStr = Field(
        default=SecretStr(""), description="32 bytes in base64 that wrap the owners' data keys"
    )
    master_key_file: Path | None = Field(
        default=None, description="a file with the master key, instead of the variable"
    )
    master_key_previous: SecretStr = Field(
        default=SecretStr(""), description="the one before, while keys are rewrapped"
    )
    erasure_trims_topics: bool = Field(
        default=False,
        description="an erasure also cuts the transit topics up to its moment, everybody's messages with it",
    )
    erasure_sla_hours: float = Field(
        default=72.0, gt=0, description="within which an erasure is to be done and verified"
    )
    dedupe_similarity: float = Field(default=0.92, ge=0, le=1)
    conflict_similarity: float = Field(default=0.85, ge=0, le=1)
    checkpoint_behind: int = Field(
        default=BEHIND,
        ge=1,
        description="entries of a slot that a claim may be late by without all of them being folded, at most",
    )

    # delivery
    group_size: int = Field(default=500, ge=1)
    group_linger_ms: float = Field(default=12.0, ge=0)
    session_timeout_seconds: float = Field(default=10.0, gt=0)
    fetch_wait_ms: int = Field(
        default=500, ge=1, description="how long a broker that has nothing for a stage may wait before it says so"
    )
    stall_seconds: float = Field(
        default=120.0, gt=0, description="a stage with lag that stands still this long ends its process"
    )
    stop_seconds: float = Field(
        default=8.0, gt=0, description="after SIGTERM: what is in hand is finished or given back within this time"
    )
    judge_processes: int = Field(default=1, ge=0, description="processes beside a worker that judge turns; 0: none")
    worker_threads: int = Field(default=4, ge=1)

    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8087, ge=0, le=65535)
    api_rate: float = Field(default=100.0, gt=0, description="requests per second that one key may make, on average")
    api_burst: int = Field(default=200, ge=1, description="requests that one key may make at once")
    api_max_body: int = Field(default=1_048_576, ge=1_000, description="bytes of one request")
    api_cors_origins: tuple[str, ...] = Field(default=(), description="origins whose pages may call the API; none: off")
    mcp_hosts: tuple[str, ...] = Field(default=(), description="names under which MCP is reached, host:port or host:*")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @model_validator(mode="after")
    def _endpoint_of_the_key(self) -> Self:
        # The usual two variables of OpenAI's own tools: a key without an address means their service.
        if self.model_api_key.get_secret_value() and not self.model_base_url:
            self.model_base_url = "https://api.openai.com/v1"
        return self

    @property
    def model_enabled(self) -> bool:
        """Whether there is an endpoint to ask."""
        return bool(self.model_base_url)

    @model_validator(mode="after")
    def _no_embedder_chosen(self) -> Self:
        # A deployment's template passes an empty variable where nothing was chosen.
        if not self.embedder:
            self.embedder = str(type(self).model_fields["embedder"].default)
            self.model_fields_set.discard("embedder")
        return self

    @property
    def embedder_chosen(self) -> str | None:
        """The embedder that somebody configured; None: whichever the live collection has."""
        return self.embedder if "embedder" in self.model_fields_set else None

    def topic(self, name: str) -> str:
        """The real name of a topic."""
        return f"{self.topic_prefix}{name}"

    def group(self, stage: str) -> str:
        """The consumer group of a stage."""
        return f"memriver-{self.topic_prefix}{stage}"
