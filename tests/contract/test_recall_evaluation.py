"""Contract: the evaluation reads the published formats, ids as malformed as they are there, and measures what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processors.exceptions import PoisonError
from recall.evaluation import beam, locomo
from recall.evaluation.vectors import KeptVectors
from sinks.embedders import make_embedder


def _said(number: str, speaker: str, text: str, **more: Any) -> dict[str, Any]:
    return {"dia_id": number, "speaker": speaker, "text": text, **more}


@pytest.fixture
def locomo_file(tmp_path: Path) -> Path:
    talk = {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            _said("D1:1", "Ann", "How was the weekend?"),
            _said("D1:2", "Bo", "I built a kayak with my uncle", blip_caption="a wooden boat on trestles"),
        ],
        "session_2_date_time": "unknown",
        "session_2": [_said("D2:1", "Ann", "I adopted two cats"), _said("D2:2", "Bo", "Lovely, what are they called?")],
    }
    asked = [
        {"question": "What did Bo build?", "answer": "a kayak", "evidence": ["D1:2"], "category": 4},
        {"question": "Which animals does Ann have?", "evidence": ["D:2:1; D9:9"], "category": 1},
        {"question": "Without evidence", "evidence": [], "category": 5},
    ]
    seen = {
        "session_1_observation": {"Bo": [["Bo built a kayak.", "D1:2"]]},
        "session_2_observation": {"Ann": [["Ann has cats.", ["D2:1"]]]},
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "c-1", "conversation": talk, "qa": asked, "observation": seen}]))
    return path


def test_locomo_is_read_with_malformed_ids_and_questions_without_evidence_left_out(locomo_file: Path) -> None:
    (found,) = locomo.load(locomo_file)
    assert [question.evidence for question in found.questions] == [{"D1:2"}, {"D2:1"}]
    assert found.turns[1].aside == "a wooden boat on trestles"
    assert list(found.cites.values()) == [{"D1:2"}, {"D2:1"}]


def test_locomo_recall_is_the_mean_share_of_evidence(locomo_file: Path, tmp_path: Path) -> None:
    kept = KeptVectors(make_embedder("hashing"), tmp_path / "cache")
    result = locomo.evaluate(locomo.load(locomo_file), kept)
    assert result["questions"] == 2
    assert result["turns"] == {"recall@5": 100.0, "recall@10": 100.0, "recall@25": 100.0}
    assert result["memories"]["recall@5"] == 100.0
    # The second run takes the vectors from the disk and says the same.
    assert (
        locomo.evaluate(locomo.load(locomo_file), KeptVectors(make_embedder("hashing"), tmp_path / "cache")) == result
    )


def test_another_file_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('[{"messages": []}]')
    with pytest.raises(PoisonError, match="not_locomo"):
        locomo.load(path)
    with pytest.raises(PoisonError, match="unreadable"):
        locomo.load(tmp_path / "missing.json")
    with pytest.raises(PoisonError, match="not_beam"):
        beam.load(tmp_path)


def test_a_conversation_that_is_not_there_is_refused(locomo_file: Path) -> None:
    with pytest.raises(PoisonError, match="invalid_option"):
        locomo.load(locomo_file, [3])


@pytest.fixture
def beam_directory(tmp_path: Path) -> Path:
    said = [
        ("user", "My photo gallery with the project cards has 8 cards, all of the gallery in rows ->-> 1,1"),
        ("assistant", "Noted: 8 cards in the gallery."),
        ("user", "The weather has been grey all week ->-> 1,2"),
        ("assistant", "It has."),
        ("user", "I added two projects to the gallery, now there are 10 cards ->-> 1,3"),
    ]
    messages = [{"id": number, "role": role, "content": text} for number, (role, text) in enumerate(said)]
    probes = {
        "knowledge_update": [
            {
                "question": "How many cards are in my gallery?",
                "source_chat_ids": {"original_info": [0], "updated_info": [4]},
            },
            {"question": "How is the weather?", "source_chat_ids": {"original_info": [2], "updated_info": [2]}},
        ],
        "event_ordering": [{"question": "Tell me about the weather", "source_chat_ids": [2, 3]}],
        "abstention": [{"question": "What is my shoe size?"}],
    }
    chat = tmp_path / "1"
    chat.mkdir()
    (chat / "chat.json").write_text(json.dumps([{"batch_number": 1, "turns": [messages]}]))
    (chat / "probing_questions.json").write_text(json.dumps(probes))
    return tmp_path


def test_beam_counts_pairs_and_what_the_stand_in_costs(beam_directory: Path) -> None:
    result = beam.evaluate(beam.load(beam_directory), None)
    assert result["pairs"] == 1 and result["pairs_in_the_same_messages"] == 1
    assert result["similarity_only"]["updated_first"] == 0
    assert result["stand_in"] == {"updated_first": 1, "updated_first_percent": 100.0, "recall@5": 100.0, "questions": 3}


def test_beam_leaves_its_own_numbering_out_of_the_texts(beam_directory: Path) -> None:
    (chat,) = beam.load(beam_directory)
    assert [unit.id for unit in chat.turns] == ["0", "2", "4"]
    assert not any("->->" in unit.text for unit in chat.turns)
