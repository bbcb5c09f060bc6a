"""Keyword tokens: two-character Chinese words are found, English is stemmed, vectors are stable and well formed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import snowballstemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from processors import keywords
from processors.keywords import LONGEST_TOKEN, Sparse, runs, sparse, sparse_query, token_index, tokens


@pytest.mark.parametrize(
    ("stored", "question"),
    [
        ("我对花生过敏", "花生"),
        ("我对花生过敏", "过敏"),
        ("我对花生过敏", "花生过敏吗？"),
        ("我养了一只猫", "猫"),
        ("他想了解量子计算", "了解"),
        ("他想了解量子计算", "量子"),
        ("女儿在上海外国语大学附属中学读书", "上海"),
        ("同事王小明负责这个项目", "小明"),
        ("我用Python写代码", "python 代码"),
        ("我喜欢Ｃ＋＋", "c++"),
        ("东京タワーに行く", "タワー"),
        ("한국어를 배우다", "한국어"),
        ("I am allergic to peanuts", "allergic peanut"),
        ("She’s running marathons", "run marathon"),
        ("The user's timezone is UTC", "users timezone"),
        ("phone 13812345678", "13812345678"),
        ("uses Python 3.11", "3.11"),
        ("paid 1,000.50 yuan", "1000.50"),
        ("the max_tokens setting", "tokens"),
    ],
)
def test_a_question_shares_a_token_with_the_memory_it_is_about(stored: str, question: str) -> None:
    assert set(tokens(question)) & set(tokens(stored))


@pytest.mark.parametrize(
    ("stored", "question"),
    [
        ("我的猫叫咪咪", "我的护照号码"),
        ("我们在北京开会", "你们在哪里"),
        ("I like the tea", "where is the car"),
        ("C++", "C#"),
        ("对了，我们走吧", "对吗"),
    ],
)
def test_glue_words_alone_do_not_make_a_match(stored: str, question: str) -> None:
    assert not set(tokens(question)) & set(tokens(stored))


def test_width_and_case_do_not_matter() -> None:
    assert tokens("ＰＹＴＨＯＮ　３．１１") == tokens("python 3.11") == ["python", "3.11"]


def test_a_chinese_word_outweighs_a_pair_that_straddles_two_words() -> None:
    counted = tokens("他想了解量子计算")
    assert counted.count("量子") == 2
    assert counted.count("解量") == 1


@pytest.mark.parametrize("word", ["7", "2024", "13812345678", "12++", "5#", "½", "2's"])
def test_a_number_is_its_own_token_and_costs_no_stemming(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stemmed = snowballstemmer.stemmer("english").stemWord(keywords.normalise(word).removesuffix("'s"))
    keywords.english.cache_clear()
    monkeypatch.setattr(snowballstemmer, "stemmer", None)
    assert "".join(tokens(word)) == stemmed.replace("⁄", "")


def test_negation_is_kept_and_glue_is_dropped() -> None:
    assert tokens("I do not eat the pork") == ["not", "eat", "pork"]
    assert tokens("the of and 的 了") == []


@pytest.mark.parametrize("text", ["", "   \n\t", "😀！？…", "的"])
def test_a_text_without_words_gives_an_empty_vector(text: str) -> None:
    assert tokens(text) == []
    assert sparse(text) == sparse_query(text) == Sparse((), ())
    assert not sparse(text)


def test_repetition_saturates_and_length_dilutes() -> None:
    def weight(text: str) -> float:
        vector = sparse(text)
        return vector.values[vector.indices.index(token_index("tea"))]

    once, twice = weight("tea"), weight("tea tea")
    assert once < twice < 2 * once
    assert weight("tea " * 500) < 2.2
    assert weight("tea with milk sugar lemon honey ginger mint cinnamon clove cardamom") < once


def test_a_question_weighs_each_token_once() -> None:
    assert sparse_query("tea tea 花生").values == (1.0, 1.0)


def test_document_and_question_agree_on_indices() -> None:
    assert set(sparse_query("花生").indices) <= set(sparse("我对花生过敏").indices)


def test_very_long_text_and_blobs_are_survived() -> None:
    assert tokens("A" * 100_000) == []
    assert set(tokens("我" * 20_000)) == set()
    assert "花生" in tokens("我喜欢" * 5_000 + "花生")


def test_indices_are_the_same_in_another_process() -> None:
    code = "from processors.keywords import sparse; print(sparse('我对花生过敏 allergic').indices)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stdout.strip() == str(sparse("我对花生过敏 allergic").indices)
    assert done.stderr == "", "loading the dictionary prints nothing and warns of nothing"


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_a_well_formed_vector(text: str) -> None:
    vector = sparse(text)
    assert list(vector.indices) == sorted(set(vector.indices))
    assert all(0 <= index < 2**32 for index in vector.indices)
    assert all(value > 0 for value in vector.values)
    assert len(vector.indices) == len(vector.values)
    assert all(0 < len(token) <= LONGEST_TOKEN for token in tokens(text))


@settings(deadline=None)
@given(st.text(alphabet="我对花生过敏abcé12 ,.'_+#한タ", max_size=60))
def test_tokens_come_from_the_runs_of_the_text(text: str) -> None:
    assert bool(tokens(text)) <= bool(list(runs(text)))


@given(st.text(alphabet="中华人民共和国北京大学生前来应聘我住在杭州爱吃火锅三年级龘爸猫ーあハ한", max_size=40))
def test_the_short_way_of_segmenting_gives_what_jieba_gives(run: str) -> None:
    """Also for sets of words that overlap, rare characters, and runs with kana and Hangul in them."""
    loaded = keywords._jieba()
    assert list(keywords._segmented(loaded, run)) == list(loaded.cut_for_search(run, HMM=False))
