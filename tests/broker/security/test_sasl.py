"""Goal: the broker's side of PLAIN and SCRAM is that of the standards, and cannot be talked round.

Method: the conversation of RFC 7677 word for word; messages that are wrong in one place each.
"""

from __future__ import annotations

import base64

import pytest

from broker.security.sasl import Plain, Refused, Scram
from protocol.scram import HASHES, Credential, combined, credential, keyed, salt_password

MECHANISM, USER, PASSWORD = "SCRAM-SHA-256", "user", "pencil"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n={USER},r={CLIENT_NONCE}".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SAME_FOR_ALL = "due to invalid credentials with SASL mechanism SCRAM-SHA-256"


def kept(mechanism: str = MECHANISM, password: str = PASSWORD) -> Credential:
    return credential(mechanism, salt_password(mechanism, password, SALT, 4096), SALT, 4096)


def scram(user: str = USER) -> Scram:
    return Scram(MECHANISM, {user: kept()}.get, SERVER_NONCE)


def test_the_conversation_of_the_standard() -> None:
    conversation = scram()
    assert conversation.answer(FIRST) == (
        f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    )
    assert conversation.user is None
    assert conversation.answer(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert conversation.user == USER


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["a=b,c", "ß", "x y"])
def test_names_with_signs_of_the_syntax(mechanism: str, user: str) -> None:
    """As a client makes its proof, with both hashes."""
    conversation = Scram(mechanism, {user: kept(mechanism)}.get)
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=abc"
    first = conversation.answer(f"n,,{bare}".encode()).decode()
    without_proof = f"c=biws,{first.partition(',')[0]}"
    message = f"{bare},{first},{without_proof}".encode()
    own = kept(mechanism)
    client_key = keyed(mechanism, salt_password(mechanism, PASSWORD, SALT, 4096), b"Client Key")
    proof = base64.b64encode(combined(client_key, keyed(mechanism, own.stored_key, message))).decode()
    answer = conversation.answer(f"{without_proof},p={proof}".encode())
    assert answer == b"v=" + base64.b64encode(keyed(mechanism, own.server_key, message))
    assert conversation.user == user


def test_a_client_asks_for_itself_only() -> None:
    scram().answer(b"n,a=user,n=user,r=abc")
    with pytest.raises(Refused, match="requested an authorization id that is different from username"):
        scram().answer(b"n,a=other,n=user,r=abc")
    with pytest.raises(Refused, match=SAME_FOR_ALL):  # nor does it learn who there is
        scram().answer(b"n,a=other,n=nobody,r=abc")


def test_every_conversation_has_a_nonce_of_its_own() -> None:
    answers = {Scram(MECHANISM, {USER: kept()}.get).answer(FIRST) for _ in range(5)}
    assert len(answers) == 5


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=other,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=a b",
        b"n,,n=\xff,r=abc",
        b"",
        b"{}",
    ],
)
def test_a_first_message_that_is_not_good(first: bytes) -> None:
    with pytest.raises(Refused, match=SAME_FOR_ALL):
        scram().answer(first)


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"p=d", b"p=e"),  # another proof
        FINAL.replace(b"hvYD", b"hvYE"),  # another nonce
        FINAL.replace(b"c=biws", b"c=eSws"),  # as if the client knew of channel binding
        FINAL.replace(b"c=biws", b"c=b"),
        FINAL.replace(b"p=dHzbZapW", b"p=dHzb"),  # too short
        FINAL.partition(b",p=")[0],
        b"",
        b"\xff",
        FIRST,
    ],
)
def test_a_final_message_that_is_not_good(final: bytes) -> None:
    conversation = scram()
    conversation.answer(FIRST)
    with pytest.raises(Refused, match=SAME_FOR_ALL):
        conversation.answer(final)
    assert conversation.user is None


@pytest.mark.parametrize("token", [b"\0user\0pencil", b"user\0user\0pencil"])
def test_a_name_and_its_password(token: bytes) -> None:
    conversation = Plain({USER: PASSWORD})
    assert conversation.answer(token) == b""
    assert conversation.user == USER


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"\0user\0pen", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0pencil", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0", "Authentication failed: password not specified"),
        (b"\0\0pencil", "Authentication failed: username not specified"),
        (
            b"root\0user\0pencil",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"user\0pencil", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0user\0pencil\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\0x", "Invalid SASL/PLAIN response: not UTF-8"),
    ],
)
def test_a_name_without_its_password(token: bytes, words: str) -> None:
    conversation = Plain({USER: PASSWORD, "empty": ""})
    with pytest.raises(Refused) as refused:
        conversation.answer(token)
    assert str(refused.value) == words
    assert conversation.user is None
