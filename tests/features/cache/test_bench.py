"""The bench of the shared cache, with few blobs and stages: what is counted, and what is an error."""

import pytest

from bench import shared_cache
from bench.cache_builds import HEAD, Build, builds, rows, write_project
from bench.cache_server import Served, serving
from bench.measure import Run, Stopwatch
from bench.shared_cache import all_blobs, main, make_blobs, measure_blobs
from orch23.features.cache.availability import CacheLimits


def test_blobs_have_all_sizes_and_are_the_same_each_time():
    blobs = make_blobs(200)
    sizes = sorted(digest.size_bytes for digest in blobs)
    assert len(sizes) == 200
    assert 100 <= sizes[0] < 110
    assert sizes[-3] < 100_000 < sizes[-2] == sizes[-1] == 1_000_000
    assert all(len(data) == digest.size_bytes for digest, data in blobs.items())
    assert make_blobs(200) == blobs


@pytest.mark.slow
def test_each_cache_is_asked_gets_all_blobs_and_returns_them(monkeypatch):
    monkeypatch.setattr(shared_cache, "protocols", lambda: ("http",))
    steps = list(all_blobs(12, (0.0, 0.001)))
    assert [(step.cache, step.name, dict(step.served.requests)) for step in steps[:8]] == [
        ("directory", "ask, none there", {"missing": 1}),
        ("directory", "upload all", {"missing": 1, "put_blob": 12, "put_entry": 2}),
        ("directory", "ask, all there", {"missing": 1}),
        ("directory", "download all", {"blob": 12}),
        ("http, 0.0 ms", "ask, none there", {"HEAD cas": 12}),
        ("http, 0.0 ms", "upload all", {"HEAD cas": 3, "PUT cas": 12, "HEAD ac": 2, "PUT ac": 2}),
        ("http, 0.0 ms", "ask, all there", {"HEAD cas": 12}),
        ("http, 0.0 ms", "download all", {"GET cas": 12}),
    ]
    assert [step.served.requests for step in steps[8:]] == [step.served.requests for step in steps[4:8]]
    assert steps[5].row()[5] == "19 (2 HEAD ac, 3 HEAD cas, 2 PUT ac, 12 PUT cas)"


@pytest.mark.slow
def test_grpc_moves_all_blobs_in_one_request():
    pytest.importorskip("grpc")
    pytest.importorskip("google.protobuf")
    with serving("grpc", 0.0) as server:
        asked, uploaded, again, downloaded = measure_blobs("grpc", server.url, server, make_blobs(12))
    assert asked.served.requests == {"GetCapabilities": 1, "FindMissingBlobs": 1}
    assert uploaded.served.requests["BatchUpdateBlobs"] == 1
    assert again.served.requests == {"FindMissingBlobs": 1}
    assert downloaded.served.requests == {"BatchReadBlobs": 1}


def test_a_cache_with_other_blobs_is_an_error(tmp_path):
    blobs = make_blobs(3)
    list(measure_blobs("directory", str(tmp_path), None, blobs))
    with pytest.raises(RuntimeError, match="directory, ask, none there: wrong result"):
        list(measure_blobs("directory", str(tmp_path), None, blobs))


def test_a_cache_that_cannot_be_reached_is_an_error(monkeypatch):
    monkeypatch.setattr(shared_cache, "_LIMITS", CacheLimits(delays_s=()))
    with pytest.raises(RuntimeError, match="is not used for the rest of this run"):
        list(measure_blobs("http", "http://127.0.0.1:1/base", None, make_blobs(1)))


def test_main_prints_a_row_for_each_step(monkeypatch, capsys):
    monkeypatch.setattr(shared_cache, "protocols", lambda: ())
    assert main(["--blobs", "3", "--stages", "0"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("commit ")
    assert printed.count("| directory |") == 4


@pytest.mark.slow
def test_builds_store_and_restore_all_stages(tmp_path):
    with Stopwatch(tmp_path / "output") as stopwatch:
        found = list(builds(3, ("by chain", 0.0), 0.001, tmp_path, stopwatch))
    assert [build.name for build in found] == [
        "no cache",
        *(
            f"{cache}: {what}"
            for cache in ("directory", "http, 0.0 ms", "http, 1.0 ms")
            for what in ("stored", "restored")
        ),
    ]
    assert found[4].served.requests == found[6].served.requests == {"GET ac": 3, "GET cas": 3}


def test_a_build_that_does_not_restore_is_an_error(tmp_path):
    class Never:
        def run(self, *_):
            return Run(1.0, 1.0, 0, 0, late=False)

        def said(self):
            return "nothing"

    with pytest.raises(RuntimeError, match="no cache: exit status 0: nothing"):
        list(builds(3, ("by layer", 0.0), 0.0, tmp_path, Never()))


def test_a_project_has_chains_and_stages_that_wait(tmp_path):
    write_project(tmp_path / "layers", 11, "by layer", 0.0)
    text = (tmp_path / "layers/pipeline.yaml").read_text()
    assert text.count("inputs: [in.txt]") == 2
    assert "s00010:\n    inputs: [out/00008.txt]" in text
    write_project(tmp_path / "one", 11, "one chain", 0.0)
    text = (tmp_path / "one/pipeline.yaml").read_text()
    assert text.count("inputs: [in.txt]") == 1
    assert "s00010:\n    inputs: [out/00009.txt]" in text
    write_project(tmp_path / "mixed", 16, "mixed", 0.0)
    text = (tmp_path / "mixed/pipeline.yaml").read_text()
    assert text.count("inputs: [in.txt]") == 1 + 8
    assert "s00007:\n    inputs: [out/00006.txt]" in text
    write_project(tmp_path / "chains", 11, "by chain", 0.5)
    text = (tmp_path / "chains/pipeline.yaml").read_text()
    assert text.count("inputs: [in.txt]") == 2
    assert "sleep 0.5 && cp out/00008.txt out/00009.txt && echo 9 >> out/00009.txt" in text


def test_rows_have_ratios_to_the_build_without_a_cache():
    def build(name: str, wall_s: float, cpu_s: float, **requests: int) -> Build:
        return Build("by chain, 100 ms", name, Run(wall_s, cpu_s, 0, 0, late=False), Served(requests, 0.0), 1.0)

    found = [build("no cache", 2.0, 1.0), build("no cache", 4.0, 3.0), build("x", 1.5, 4.0, GET=20)]
    bare, cached = rows(found, 10)
    assert len(bare) == len(cached) == len(HEAD)
    assert bare[1:8] == ["no cache", "3.00", "1.00", "2.00", "1.00", "-", "-"]
    assert cached[1:8] == ["x", "1.50", "0.50", "4.00", "2.00", "20 GET", "2.0"]


def test_the_server_is_stopped():
    with serving("http", 0.0) as server:
        assert server.served().requests == {}
    assert server.process.poll() is not None
