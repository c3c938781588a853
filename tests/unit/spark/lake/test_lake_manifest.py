"""The manifest: what it says survives being written, and whatever is wrong with it is noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.spark.lake.errors import LakeError, ManifestDamaged, ManifestMoved
from barnabas.spark.lake.lake import Lake, LakePolicy
from barnabas.spark.lake.manifest import DataFile, Entry, Move, Origin, State, Swap, Table
from barnabas.spark.lake.manifest_json import decode_entry, decode_state, encode_entry, encode_state
from barnabas.spark.lake.manifest_log import ManifestLog
from barnabas.spark.ranges import OffsetRange
from tests.unit.spark.lake.model_files import ModelFiles
from tests.unit.spark.lake.model_load import TABLE, run

RANGE = OffsetRange("clicks", 3, 10, 20)
FILE = DataFile("date=2026-01-01/hour=00/a.parquet", 490_000, 7, 1234, (Origin(RANGE, 7),))
ENTRY = Entry(
    version=1,
    kind="load",
    writer="w",
    table=TABLE,
    schema={"type": "struct", "fields": []},
    ranges=(RANGE,),
    begins={("clicks", 3): 10},
    query=("q", 5),
    latest_ms={("clicks", 3): 99},
    add=(FILE, DataFile("_late/b", None, 1, 2, (), is_late=True)),
    dropped={("clicks", 3): 2},
    complete_until=490_001,
    staging="_staging/x",
    moves=(Move("_staging/x/part", FILE.path),),
    swap=Swap("_staging/x/new", "date=2026-01-01/hour=00", "_staging/x/old"),
    marks=(490_000,),
)


def manifest_with(versions: int, checkpoint_every: int = 20) -> ModelFiles:
    files = ModelFiles()
    log = ManifestLog(files, checkpoint_every)
    state = State()
    for version in range(1, versions + 1):
        state = log.append(state, Entry(version, "load", ranges=(OffsetRange("clicks", 0, version - 1, version),)))
    return files


def test_an_entry_and_a_state_are_read_as_they_were_written() -> None:
    assert decode_entry(encode_entry(ENTRY), "here") == ENTRY
    state = State().after(ENTRY)
    assert decode_state(encode_state(state), "here") == state
    assert encode_entry(ENTRY) == encode_entry(decode_entry(encode_entry(ENTRY), "here"))


def test_a_manifest_cut_anywhere_or_altered_is_never_taken_for_a_whole_one() -> None:
    whole = encode_entry(ENTRY)
    for length in range(len(whole) - 1):
        with pytest.raises(ManifestDamaged, match=r"_manifest/5.json is cut off"):
            decode_entry(whole[:length], "_manifest/5.json")
    with pytest.raises(ManifestDamaged, match="was altered"):
        decode_entry(whole.replace(b'"rows":7', b'"rows":8'), "here")
    with pytest.raises(ManifestDamaged, match="has format 9"):
        decode_entry(whole.replace(b'"format":1', b'"format":9'), "here")


def test_entries_out_of_order_and_files_twice_are_refused() -> None:
    state = State().after(ENTRY)
    with pytest.raises(ManifestDamaged, match="entry 3 of the manifest cannot follow entry 1"):
        state.after(Entry(3, "load"))
    with pytest.raises(ManifestDamaged, match="a second time"):
        state.after(Entry(2, "load", add=(replace(FILE),)))
    with pytest.raises(ManifestDamaged, match=r"removes nothing.parquet, which is not in it"):
        state.after(Entry(2, "compact", remove=("nothing.parquet",)))


def test_the_next_offset_follows_the_beginning_whatever_lies_apart() -> None:
    state = State()
    for version, (start, end) in enumerate([(100, 200), (300, 400), (0, 50)], start=1):
        begins = {("clicks", 0): 100}
        state = state.after(Entry(version, "load", ranges=(OffsetRange("clicks", 0, start, end),), begins=begins))
    assert state.next_offsets() == {("clicks", 0): 200}
    missing = state.missing([OffsetRange("clicks", 0, 0, 500), OffsetRange("clicks", 1, 0, 1)])
    assert [(one.partition, one.start, one.end) for one in missing] == [
        (0, 50, 100),
        (0, 200, 300),
        (0, 400, 500),
        (1, 0, 1),
    ]
    filled = state.after(Entry(4, "load", ranges=(OffsetRange("clicks", 0, 200, 300),)))
    assert filled.next_offsets() == {("clicks", 0): 400}


def test_a_load_whose_first_task_is_not_done_yet_goes_on_at_its_beginning() -> None:
    entry = Entry(1, "load", ranges=(OffsetRange("clicks", 0, 100, 200),), begins={("clicks", 0): 0})
    assert State().after(entry).next_offsets() == {("clicks", 0): 0}


def test_old_entries_are_removed_and_the_state_is_the_same() -> None:
    files = manifest_with(11, checkpoint_every=3)
    state, last = ManifestLog(files, 3).read()
    assert state.next_offsets() == {}
    assert state.done == {("clicks", 0): ((0, 11),)}
    assert last == Entry(11, "load", ranges=(OffsetRange("clicks", 0, 10, 11),))
    assert len(files.files) < 11


def test_a_damaged_checkpoint_is_passed_over_where_the_entries_are_still_there() -> None:
    files = manifest_with(11, checkpoint_every=3)
    newest = max(name for name in files.files if "checkpoint" in name)
    files.files[newest] = files.files[newest][:40]
    assert ManifestLog(files, 3).read()[0].done == {("clicks", 0): ((0, 11),)}
    older = min(name for name in files.files if "checkpoint" in name)
    files.files[older] = b""
    with pytest.raises(ManifestDamaged, match=r"checkpoint.json is cut off.*restore it"):
        ManifestLog(files, 3).read()


@pytest.mark.parametrize("version", [2, 3])
def test_an_entry_that_is_missing_or_damaged_is_named(version: int) -> None:
    files = manifest_with(3)
    name = f"_manifest/{version:020}.json"
    files.files[name] = files.files[name][:20]
    with pytest.raises(ManifestDamaged, match=rf"{version:020}.json is cut off") as damage:
        ManifestLog(files).read()
    assert ("or remove it" in str(damage.value)) == (version == 3)
    if version == 2:
        del files.files[name]
        with pytest.raises(ManifestDamaged, match=rf"{name} is missing"):
            ManifestLog(files).read()


def test_of_two_runs_that_commit_the_same_version_one_is_refused() -> None:
    files = manifest_with(1)
    log = ManifestLog(files)
    state, _ = log.read()
    log.append(state, Entry(2, "load", staging="_staging/one"))
    with pytest.raises(ManifestMoved, match="another run has opened model:/lake since"):
        log.append(state, Entry(2, "load", staging="_staging/other"))


def test_an_answer_that_was_lost_does_not_refuse_the_run_that_has_committed() -> None:
    files = manifest_with(1)
    log = ManifestLog(files)
    state, _ = log.read()
    entry = Entry(2, "load", staging="_staging/one")
    assert log.append(state, entry) == log.append(state, entry)


def test_a_lake_is_begun_only_in_an_empty_directory_and_never_changes_its_table() -> None:
    files = ModelFiles()
    files.files["date=2026-01-01/hour=00/foreign.parquet"] = b"rows"
    with pytest.raises(LakeError, match=r"has no manifest, but holds date=2026-01-01"):
        Lake(files, LakePolicy(TABLE)).open()
    lake = ModelFiles()
    run(lake)
    with pytest.raises(LakeError, match=r"holds parquet by at in date=/hour=; it cannot take orc by at"):
        Lake(lake, LakePolicy(Table("orc", "at", "date", "hour"))).open()


def test_a_file_of_the_last_version_that_is_nowhere_stops_the_run() -> None:
    files = ModelFiles()
    run(files)
    log = ManifestLog(files)
    state, _ = log.read()
    files.files["_staging/x/left"] = b""
    moves = (Move("_staging/x/gone", FILE.path),)
    log.append(state, Entry(state.version + 1, "load", staging="_staging/x", add=(FILE,), moves=moves))
    with pytest.raises(ManifestDamaged, match=rf"{FILE.path} is in the manifest, and is neither there nor in _staging"):
        Lake(files, LakePolicy(TABLE)).open()
