"""The ways to a page: over TLS by the name that was asked for, and through a proxy if an owner has set one."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener, TLSStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from antiphon.domain.errors import AntiphonError
from antiphon.domain.page_address import parse_page_address
from antiphon.policy.web_addresses import WebRules
from antiphon.tools.web.fetching import Fetcher
from antiphon.tools.web.network import is_this_machine
from tests.claims import requirement
from tests.tools.web.page_server import PUBLIC_STAND_IN, Names, answer, page_server

pytestmark = pytest.mark.anyio


def certify(folder: Path, name: str) -> tuple[Path, Path]:
    """The files of a certificate for the name that is its own authority, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    return folder / "certificate.pem", folder / "key.pem"


@requirement("flow:7")
async def test_a_certificate_must_be_for_the_name_and_from_a_known_authority(tmp_path: Path) -> None:
    certificate, key = certify(tmp_path, "example.org")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)

    async def serve(stream: TLSStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(answer(b"hello"))

    async def fetched(url: str, authority: Path | None) -> str:
        known = replace(Names().network, certificates=lambda: ssl.create_default_context(cafile=authority))
        try:
            found = await Fetcher(WebRules(ports=(port,)), known).fetch(parse_page_address(url))
        except AntiphonError as error:
            assert "certificate is not accepted" in error.message
            return error.code
        return found.body.decode()

    async with anyio.create_task_group() as tasks:
        plain = await anyio.create_tcp_listener(local_host=PUBLIC_STAND_IN)
        port = plain.extra(SocketAttribute.local_port)
        tasks.start_soon(TLSListener(plain, served, standard_compatible=False).serve, serve)
        assert await fetched(f"https://example.org:{port}/", certificate) == "hello"
        assert await fetched(f"https://other.org:{port}/", certificate) == "page_unreachable"
        assert await fetched(f"https://example.org:{port}/", None) == "page_unreachable"
        tasks.cancel_scope.cancel()


@requirement("flow:7")
async def test_a_proxy_gets_whole_addresses_and_no_private_ones() -> None:
    names = Names({"nas.example.org": [["10.0.0.7"]], "far.example.org": [[]]})
    async with page_server() as server:
        server.pages["http://far.example.org/page"] = answer(b"by proxy")
        fetcher = Fetcher(WebRules(), names.network, proxy=f"http://{PUBLIC_STAND_IN}:{server.port}")
        found = await fetcher.fetch(parse_page_address("http://far.example.org/page"))
        assert found.body == b"by proxy" and server.asked_for == ["http://far.example.org/page"]
        with pytest.raises(AntiphonError) as refused:
            await fetcher.fetch(parse_page_address("http://nas.example.org/"))
        assert refused.value.code == "page_refused" and len(server.asked) == 1


@requirement("flow:7")
@pytest.mark.parametrize(("address", "is_own"), [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False)])
def test_an_address_of_this_machine_is_known_without_a_word_to_it(address: str, is_own: bool) -> None:
    from ipaddress import ip_address

    assert is_this_machine(ip_address(address)) is is_own
