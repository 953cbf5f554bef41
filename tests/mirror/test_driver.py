"""Which library drives a store: obstore where it can do what the options ask for, and a reason in every case."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from mirror import RecordMirror
from mirror.config import MirrorConfig
from mirror.errors import ConfigError, TryAgainError
from mirror.location import parse_location
from mirror.samples import write_corpus
from mirror.store import Store
from mirror.stores.driver import choose_driver
from mirror.stores.obstore_s3_client import region_of
from mirror.testing import Answer, Fault, FaultProxy, Reply
from mirror.testing.servers import azure_connection_string
from tests.mirror.places import AzurePlace, Place, S3Place, mirrored_files, record_files
from tests.mirror.relay import Relay
from tests.mirror.store_kinds import keys_of, kind_of, put
from tests.mirror.tls import Certificates


@pytest.fixture(autouse=True)
def no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the home of whoever runs the tests decides."""
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")


def choice(url: str, **options: Any) -> tuple[str, str]:  # noqa: ANN401 - mirror options
    driver = choose_driver(parse_location(url), MirrorConfig(**options))
    return driver.name, driver.reason


def test_s3_is_driven_by_obstore_unless_something_speaks_against_it() -> None:
    """An option without counterpart, a checksum of another kind, or somebody's choice; the reason says which."""
    assert choice("s3://bucket/run") == ("obstore", "it can do all that the options ask for")
    acl = {"s3_additional_kwargs": {"ACL": "private"}}
    name, reason = choice("s3://bucket/run", storage_options=acl)
    assert name == "fsspec"
    assert "ACL" in reason
    assert choice("s3://bucket/run", upload_checksum="md5")[0] == "fsspec"
    assert choice("s3://bucket/run", driver="fsspec") == ("fsspec", "it was chosen")


@pytest.mark.parametrize("url", ["az://box/run", "abfs://box/run", "abfss://box@acc.dfs.core.windows.net/run"])
def test_azure_is_driven_by_obstore_over_tls(url: str) -> None:
    """And by adlfs where something speaks against it: an option, somebody's choice, or plain http."""
    account = {"account_name": "acc", "account_key": "a2V5"}
    assert choice(url, storage_options=account) == ("obstore", "it can do all that the options ask for")
    name, reason = choice(url, storage_options=account | {"location_mode": "secondary"})
    assert name == "fsspec"
    assert "location_mode" in reason
    assert choice(url, storage_options=account, driver="fsspec") == ("fsspec", "it was chosen")
    plain = {"connection_string": azure_connection_string("http://127.0.0.1:10000")}
    name, reason = choice(url, storage_options=plain)
    assert name == "fsspec"
    assert "plain http" in reason
    with pytest.raises(ConfigError, match="plain http"):
        RecordMirror(url, driver="obstore", storage_options=plain)


def test_other_places_have_their_own() -> None:
    """A directory is written by the mirror itself, everything else by fsspec."""
    assert choice("/data/mirror")[0] == "files"
    assert choice("gs://bucket/run")[0] == "fsspec"
    assert choice("adl://store/run")[0] == "fsspec"


def test_obstore_that_was_asked_for_and_cannot_be_is_a_wrong_setting() -> None:
    """The mirror is not made, and the sentence says what stands in the way."""
    acl = {"s3_additional_kwargs": {"ACL": "private"}}
    with pytest.raises(ConfigError, match="ACL"):
        RecordMirror("s3://bucket/run", driver="obstore", storage_options=acl)
    with pytest.raises(ConfigError, match="gs://"):
        choose_driver(parse_location("gs://bucket/run"), MirrorConfig(driver="obstore"))
    with pytest.raises(ConfigError, match="driver must be one of auto, fsspec, obstore, not 'rust'"):
        MirrorConfig(driver="rust")


def test_the_stats_say_which_and_why() -> None:
    """Before anything runs already."""
    stats = RecordMirror("s3://bucket/run", driver="fsspec").stats()
    assert (stats["driver"], stats["driver_reason"]) == ("fsspec", "it was chosen")


@pytest.mark.integration
@pytest.mark.parametrize("place_name", ["s3_place", "azure_place"])
def test_a_child_of_a_process_that_used_obstore_goes_on_with_fsspec(
    place_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Obstore's threads do not come along in a fork; the child's mirror copies all the same, and says why."""
    place: Place = request.getfixturevalue(place_name)
    parents, childs = tmp_path / "parent", tmp_path / "child"
    write_corpus(parents, profile="tiny", count=3, seed=1)
    write_corpus(childs, profile="tiny", count=3, seed=2)
    script = """
    import json, os, sys
    from mirror import RecordMirror
    url, options, parents, childs = json.loads(sys.argv[1])
    mirror = RecordMirror(url, storage_options=options)
    mirror.scan(parents)
    assert mirror.flush(60)
    assert mirror.stats()["driver"] == "obstore", mirror.stats()
    child = os.fork()
    if not child:
        mirror.scan(childs)
        done = mirror.flush(60) and mirror.close(5)
        print(json.dumps([done, mirror.stats()["driver"], mirror.stats()["driver_reason"]]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    assert mirror.close(5)
    """
    arguments = json.dumps([place.url, place.options(), str(parents), str(childs)])
    ended = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", dedent(script), arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    done, driver, reason = json.loads(ended.stdout)
    assert (done, driver) == (True, "fsspec")
    assert "forked" in reason
    assert mirrored_files(place) == record_files(parents) | record_files(childs)


@pytest.mark.integration
def test_a_key_that_obstore_cannot_name_is_listed_all_the_same(s3_place: S3Place, s3_proxy: FaultProxy) -> None:
    """Another client's object with an empty part in its name must not hide the rest of the mirror."""
    strange = f"""<?xml version="1.0"?><ListBucketResult><Name>{s3_place.bucket}</Name><IsTruncated>false</IsTruncated>
    <Contents><Key>{s3_place.prefix}/strange//name</Key><LastModified>2026-11-29T23:05:19.000Z</LastModified>
    <ETag>"c20ad4d76fe97759aa27a0c99bff6710"</ETag><Size>2</Size></Contents></ListBucketResult>"""

    async def use(store: Store) -> None:
        await put(store, "tr_1.json.zst", b"here")
        s3_proxy.script(Fault(action=Answer(Reply(status=200, body=strange.encode())), times=2))
        assert await keys_of(store) == ["strange//name"]
        assert await keys_of(store) == ["tr_1.json.zst"]

    kind_of(s3_place, via=s3_proxy.url, driver="obstore").run(use)


def azure_page(*blobs: str) -> Reply:
    """Return a page of a listing as Azure gives it."""
    listed = f'<EnumerationResults ServiceEndpoint="http://here/"><Blobs>{"".join(blobs)}</Blobs><NextMarker/>'
    body = f'<?xml version="1.0" encoding="utf-8"?>{listed}</EnumerationResults>'
    return Reply(status=200, body=body.encode(), headers={"Content-Type": "application/xml"})


def azure_blob(name: str, properties: str = "", metadata: str = "") -> str:
    told = "<Last-Modified>Sun, 29 Nov 2026 23:05:19 GMT</Last-Modified><Etag>0x1</Etag><BlobType>BlockBlob</BlobType>"
    content = "<Content-Length>2</Content-Length><Content-Type>application/octet-stream</Content-Type>"
    return (
        f"<Blob><Name>{name}</Name><Properties>{told}{content}{properties}</Properties>"
        f"<Metadata>{metadata}</Metadata></Blob>"
    )


@pytest.mark.integration
@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_blob_that_obstore_cannot_name_is_listed_all_the_same(
    driver: str, azure_place: AzurePlace, azure_proxy: FaultProxy
) -> None:
    """Another client's, with an empty part in its name: the rest of the mirror is listed with it."""
    names = ["a.json.zst", "strange//name", "tr_1.json.zst"]
    page = azure_page(*(azure_blob(f"{azure_place.prefix}/{name}") for name in names))

    async def use(store: Store) -> None:
        for after in ["", "a.json.zst"]:
            azure_proxy.clear()
            azure_proxy.script(Fault(action=Answer(page), times=2))
            assert await keys_of(store, after=after) == [name for name in names if name > after]

    kind_of(azure_place, via=azure_proxy.url, driver=driver).run(use)


@pytest.mark.integration
@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_the_folders_of_a_hierarchical_account_are_no_objects(
    driver: str, azure_place: AzurePlace, azure_proxy: FaultProxy
) -> None:
    """Such an account lists each directory as an object of its own, marked as a folder."""
    folder = azure_blob(
        f"{azure_place.prefix}/_receipts",
        "<ResourceType>directory</ResourceType>",
        "<hdi_isfolder>true</hdi_isfolder>",
    )
    file = azure_blob(
        f"{azure_place.prefix}/_receipts/a", "<ResourceType>file</ResourceType>", "<owner>somebody</owner>"
    )
    azure_proxy.script(Fault(action=Answer(azure_page(folder, file))))
    kind = kind_of(azure_place, via=azure_proxy.url, driver=driver)
    assert kind.run(keys_of) == ["_receipts/a"]


@pytest.mark.integration
@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_an_interpreter_ends_well_with_a_mirror_on_azure_left_open(
    driver: str, azure_place: AzurePlace, tmp_path: Path
) -> None:
    """The exit waits for no event loop that is no more; what was mirrored is."""
    write_corpus(tmp_path, profile="tiny", count=3, seed=1)
    script = """
    import json, sys
    from mirror import RecordMirror
    url, options, driver, records = json.loads(sys.argv[1])
    mirror = RecordMirror(url, driver=driver, storage_options=options)
    mirror.scan(records)
    assert mirror.flush(60)
    assert mirror.stats()["driver"] == driver, mirror.stats()
    """
    place = replace(azure_place, driver=driver)
    arguments = json.dumps([place.url, place.options(), driver, str(tmp_path)])
    ended = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", dedent(script), arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert mirrored_files(place) == record_files(tmp_path)


@pytest.mark.integration
def test_the_objects_of_a_whole_page_are_all_that_there_is(s3_place: S3Place, s3_proxy: FaultProxy) -> None:
    """A listing that ends where a page does is asked for its end once more, of a client that cannot be misled."""
    names = [f"tr_{number:04}.json.zst" for number in range(1_000)]

    async def use(store: Store) -> list[str]:
        for name in names:
            await put(store, name, b"")
        before = s3_proxy.counts["GET"]
        found = await keys_of(store)
        assert s3_proxy.counts["GET"] - before == 2
        return found

    assert kind_of(s3_place, via=s3_proxy.url, driver="obstore").run(use) == names


@pytest.mark.integration
def test_a_store_that_is_not_there_is_named_with_the_cause(s3_place: S3Place) -> None:
    """The operating system's own word, the endpoint, and what to look at: not a page of the client's."""
    kind = kind_of(s3_place, via="http://127.0.0.1:9", driver="obstore")
    with pytest.raises(TryAgainError) as caught:
        kind.run(lambda store: put(store, "tr_1.json.zst", b"here"))
    assert caught.value.reason == "Connection refused (http://127.0.0.1:9): check the endpoint and the network"


@pytest.mark.integration
def test_a_server_that_nobody_vouches_for_is_named(azure_place: AzurePlace, tmp_path: Path) -> None:
    """It is the certificate that is to be looked at, and not whether the server runs."""
    untrusted = Certificates.made_in(tmp_path)
    with Relay(azure_place.server.url, untrusted.server) as server, pytest.raises(TryAgainError) as caught:
        kind_of(azure_place, via=server.url).run(lambda store: put(store, "tr_1.json.zst", b"here"))
    assert caught.value.reason.startswith("the server's certificate is not accepted, ")
    assert caught.value.reason.endswith(f"({server.url}): check the endpoint and the network")


@pytest.mark.parametrize("status", [200, 301, 400, 403])
def test_aws_tells_the_region_of_a_bucket_whatever_else_it_answers(status: int) -> None:
    """A redirect or a denial names it as a success does; silence is no region."""
    told = Reply(status=status, headers={"x-amz-bucket-region": "eu-north-1"})
    with FaultProxy("http://127.0.0.1:9", check_request=lambda *_: told) as proxy:
        assert region_of(f"{proxy.url}/bucket") == "eu-north-1"
    with FaultProxy("http://127.0.0.1:9", check_request=lambda *_: Reply(status=status)) as proxy:
        assert region_of(f"{proxy.url}/bucket") is None
    assert region_of("http://127.0.0.1:9/bucket") is None
