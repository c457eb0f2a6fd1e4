"""Names and certificates of our own: in a network with only loopback, every name that is known leads to this machine.

Nothing is changed on disk. The addresses of the machine's name servers are given to loopback, where we answer; the
certificates are signed by a root that programs are told of by their usual variables.
"""

import asyncio
import datetime
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from codesdk.testing.network import is_alone

_A, _NO_ERROR, _NO_NAME = 1, 0x8180, 0x8183
PEM = serialization.Encoding.PEM


class Names(asyncio.DatagramProtocol):
    """A name server that knows a few names, and notes what it is asked."""

    def __init__(self, known: Iterable[str], asked: set[str]) -> None:
        self.known = frozenset(known)
        self.asked = asked
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        name, end = _name(data)
        self.asked.add(name)
        (kind,) = struct.unpack_from("!H", data, end)
        question = data[12 : end + 4]
        found = name in self.known
        answers = 1 if found and kind == _A else 0
        head = data[:2] + struct.pack("!HHHHH", _NO_ERROR if found else _NO_NAME, 1, answers, 0, 0)
        record = b"\xc0\x0c" + struct.pack("!HHIH", _A, 1, 60, 4) + bytes((127, 0, 0, 1))
        self._transport.sendto(head + question + record * answers, addr)


@asynccontextmanager
async def names(*known: str) -> AsyncIterator[set[str]]:
    """Answer for these names while the block runs. Gives those that were asked for. Only in a network of one's own."""
    assert is_alone()
    loop = asyncio.get_running_loop()
    asked, transports = set[str](), list[asyncio.BaseTransport]()
    for address in _name_servers():
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Names(known, asked), local_addr=(address, 53)
        )
        transports.append(transport)
    try:
        yield asked
    finally:
        for transport in transports:
            transport.close()


def make_certificates(folder: Path, *hosts: str) -> tuple[Path, ssl.SSLContext]:
    """Return the root that programs have to trust, and what a server of these hosts shows."""
    folder.mkdir()
    now = datetime.datetime.now(datetime.UTC)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a root of the tests")])

    def certificate(
        name: x509.Name, public: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType
    ) -> bytes:
        built = x509.CertificateBuilder(issuer_name=root_name, subject_name=name, public_key=public)
        built = built.serial_number(x509.random_serial_number())
        built = built.not_valid_before(now - datetime.timedelta(days=1))
        built = built.not_valid_after(now + datetime.timedelta(days=7))
        for extension in extensions:
            built = built.add_extension(extension, critical=False)
        return built.sign(root_key, hashes.SHA256()).public_bytes(PEM)

    root, chain = folder / "root.pem", folder / "chain.pem"
    is_root = x509.BasicConstraints(ca=True, path_length=None)
    root.write_bytes(certificate(root_name, root_key.public_key(), is_root))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    shown = certificate(
        name, key.public_key(), x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    )
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain.write_bytes(shown + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return root, context


def _name_servers() -> list[str]:
    """Return the addresses that programs ask for names, all of them on loopback now."""
    lines = [line.split() for line in Path("/etc/resolv.conf").read_text().split("\n")]
    named = [line[1] for line in lines if line[:1] == ["nameserver"] and ":" not in line[1]]
    for address in named:
        if not address.startswith("127."):
            subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
    return named or ["127.0.0.1"]


def _name(data: bytes) -> tuple[str, int]:
    """Return the name that is asked for, and where it ends."""
    labels, at = list[str](), 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels).lower(), at + 1
