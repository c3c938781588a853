"""Our assignors against Kafka's own, on groups drawn by chance."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from random import Random

import pytest

from barnabas import TopicPartition
from barnabas.client.group.assignors import ASSIGNORS
from barnabas.client.group.assignors.assignor import NO_RACKS, Applicant, Racks, Shares
from barnabas.client.group.assignors.sticky import remembering
from tests import peers
from tests.peers import ROOT

Ask = Callable[[list[str]], list[str]]
Group = tuple[dict[str, int], list[Applicant]]


@pytest.fixture(scope="module")
def ask_java() -> Ask:
    command = peers.java_command(ROOT / "tests" / "interop" / "clients" / "Assign.java")

    def ask(lines: list[str]) -> list[str]:
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()

    return ask


def words(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(sorted(f"{each.topic}:{each.partition}" for each in partitions))


def question(assignor: str, group: Group, racks: Racks = NO_RACKS) -> str:
    counts, applicants = group
    topics = [
        f"{topic}={'/'.join(','.join(sorted(racks.get(TopicPartition(topic, n), ()))) for n in range(count))}"
        for topic, count in counts.items()
    ]
    members = [
        ";".join(
            [
                each.member_id,
                each.group_instance_id or "",
                " ".join(sorted(each.topics)),
                b64encode(each.user_data or b"").decode(),
                words(each.owned),
                str(each.generation),
                each.rack or "",
            ]
        )
        for each in applicants
    ]
    return "|".join(["assign", assignor, " ".join(topics), *members])


def answer(shares: Shares) -> str:
    return "|".join(f"{member}={words(share)}" for member, share in sorted(shares.items()))


def draw(random: Random) -> Group:
    """Topics and members, some of them static, which do not all read the same; some topics do not exist."""
    names = [f"t{number}" for number in range(random.randint(1, 4))]
    counts = {name: random.randint(1, 7) for name in names if random.random() < 0.9}
    applicants = []
    for number in range(random.randint(1, 5)):
        topics = frozenset(name for name in names if random.random() < 0.7) or frozenset(names[:1])
        instance = f"i{random.randint(0, 99)}-{number}" if random.random() < 0.4 else None
        applicants.append(Applicant(f"m{random.randint(0, 99)}-{number}", instance, topics))
    return counts, applicants


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_shares_are_those_of_kafkas_assignor(name: str, ask_java: Ask) -> None:
    groups = [draw(Random(seed)) for seed in range(300)]
    expected = ask_java([question(name, group) for group in groups])
    assert [answer(ASSIGNORS[name]().assign(*group)) for group in groups] == expected


def test_range_prefers_replicas_in_the_members_own_rack_as_kafkas_does(ask_java: Ask) -> None:
    drawn = []
    for seed in range(400):
        random = Random(seed)
        counts, applicants = draw(random)
        counts = dict.fromkeys(counts, random.randint(1, 6)) if random.random() < 0.6 else counts
        everything = random.random() < 0.6
        told = [
            each._replace(
                rack=random.choice(["a", "b", "c", None]), topics=frozenset(counts) if everything else each.topics
            )
            for each in applicants
        ]
        places = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        racks = {place: frozenset(random.sample("abcd", random.randint(1, 3))) for place in places}
        drawn.append(((counts, told), racks))
    expected = ask_java([question("range", group, racks) for group, racks in drawn])
    ours = [answer(ASSIGNORS["range"]().assign(*group, racks)) for group, racks in drawn]
    assert ours == expected


def resubscribed(name: str, group: Group, shares: Shares, generation: int) -> Group:
    """The group as it joins again after it got its shares."""
    counts, applicants = group
    again = []
    for each in applicants:
        assignor = ASSIGNORS[name]()
        assignor.assigned(shares[each.member_id], generation)
        owned = frozenset(shares[each.member_id]) if assignor.cooperative else frozenset()
        again.append(each._replace(owned=owned, generation=generation, user_data=assignor.user_data()))
    return counts, again


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_kafkas_assignor_finds_our_shares_even_and_leaves_them_where_they_are(name: str, ask_java: Ask) -> None:
    drawn = [draw(Random(seed)) for seed in range(200)]
    groups = [(counts, [each._replace(topics=frozenset(counts)) for each in members]) for counts, members in drawn]
    shares = [ASSIGNORS[name]().assign(*group) for group in groups]
    again = [question(name, resubscribed(name, group, share, 5)) for group, share in zip(groups, shares, strict=True)]
    assert ask_java(again) == [answer(share) for share in shares]


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_our_assignor_leaves_kafkas_shares_where_they_are(name: str, ask_java: Ask) -> None:
    drawn = [draw(Random(seed)) for seed in range(200)]
    groups = [(counts, [each._replace(topics=frozenset(counts)) for each in members]) for counts, members in drawn]
    answers = ask_java([question(name, group) for group in groups])
    for group, told in zip(groups, answers, strict=True):
        shares = {
            member: [TopicPartition(each.split(":")[0], int(each.split(":")[1])) for each in share.split()]
            for member, _, share in (part.partition("=") for part in told.split("|"))
        }
        assert answer(ASSIGNORS[name]().assign(*resubscribed(name, group, shares, 5))) == told


def test_user_data_is_kafkas(ask_java: Ask) -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("b", 1)]
    for name in ("sticky", "cooperative-sticky"):
        (told,) = ask_java([f"remember|{name}|{words(partitions)}|7"])
        ours = ASSIGNORS[name]()
        ours.assigned(partitions, 7)
        if name == "cooperative-sticky":
            assert ours.user_data() == b64decode(told)
        for data in (ours.user_data(), b64decode(told)):
            if name == "sticky":  # the topics may come in any order
                read = remembering(Applicant("m", None, frozenset(), user_data=data))
                assert (read.owned, read.generation) == (frozenset(partitions), 7)
