"""MIT's libgssapi for the scripts here: a client's tokens and its session key, through ctypes.

The library comes with Debian's krb5-user; nothing has to be compiled. Which tickets are used is said by
KRB5CCNAME and KRB5_CONFIG in the environment.
"""

import ctypes
import ctypes.util

_lib = ctypes.CDLL(ctypes.util.find_library("gssapi_krb5") or "libgssapi_krb5.so.2")


class _Oid(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint32), ("elements", ctypes.c_void_p)]


class _Buffer(ctypes.Structure):
    _fields_ = [("length", ctypes.c_size_t), ("value", ctypes.c_void_p)]

    def bytes(self):
        return ctypes.string_at(self.value, self.length) if self.length else b""


class _BufferSet(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("elements", ctypes.POINTER(_Buffer))]


def _oid(content):
    memory = ctypes.create_string_buffer(content, len(content))
    oid = _Oid(len(content), ctypes.cast(memory, ctypes.c_void_p))
    oid.memory = memory  # keeps it alive
    return oid


KERBEROS = _oid(bytes.fromhex("2a864886f712010202"))
SPNEGO = _oid(bytes.fromhex("2b0601050502"))
_HOSTBASED = _oid(bytes.fromhex("2a864886f71201020104"))
_SESSION_KEY = _oid(bytes.fromhex("2a864886f7120102020505"))
_MUTUAL, _REPLAY, _SEQUENCE, _CONFIDENTIAL, _INTEGRITY = 2, 4, 8, 16, 32
_CONTINUE = 1


class GssError(Exception):
    """What the library said."""


def _check(major, minor):
    if major & 0xFFFF0000 == 0:
        return
    texts = []
    for code, kind in ((major, 1), (minor.value, 2)):
        more, ignored, text = ctypes.c_uint32(0), ctypes.c_uint32(), _Buffer()
        _lib.gss_display_status(
            ctypes.byref(ignored), code, kind, None, ctypes.byref(more), ctypes.byref(text)
        )
        texts.append(text.bytes().decode(errors="replace"))
    raise GssError("; ".join(texts))


class Client:
    """One context of the client's side with the service `cifs@HOST`."""

    def __init__(self, host, mechanism=SPNEGO, mutual=True):
        self._context = ctypes.c_void_p()
        self._mechanism = mechanism
        self._flags = _INTEGRITY | _CONFIDENTIAL | _REPLAY | _SEQUENCE | (_MUTUAL if mutual else 0)
        self.complete = False
        self._name = ctypes.c_void_p()
        minor, text = ctypes.c_uint32(), f"cifs@{host}".encode()
        memory = ctypes.create_string_buffer(text, len(text))
        given = _Buffer(len(text), ctypes.cast(memory, ctypes.c_void_p))
        major = _lib.gss_import_name(
            ctypes.byref(minor), ctypes.byref(given), ctypes.byref(_HOSTBASED), ctypes.byref(self._name)
        )
        _check(major, minor)

    def step(self, in_token=None, **_):
        """Takes the server's token and gives the next one, if there is one."""
        minor, out = ctypes.c_uint32(), _Buffer()
        # What comes before the first token is a hint of the server's, which MIT does not take.
        token = in_token if in_token and self._context else b""
        memory = ctypes.create_string_buffer(token, len(token))
        given = _Buffer(len(token), ctypes.cast(memory, ctypes.c_void_p))
        major = _lib.gss_init_sec_context(
            ctypes.byref(minor),
            None,
            ctypes.byref(self._context),
            self._name,
            ctypes.byref(self._mechanism),
            ctypes.c_uint32(self._flags),
            ctypes.c_uint32(0),
            None,
            ctypes.byref(given),
            None,
            ctypes.byref(out),
            None,
            None,
        )
        _check(major, minor)
        self.complete = major & _CONTINUE == 0
        return out.bytes() or None

    @property
    def session_key(self):
        minor, found = ctypes.c_uint32(), ctypes.POINTER(_BufferSet)()
        major = _lib.gss_inquire_sec_context_by_oid(
            ctypes.byref(minor), self._context, ctypes.byref(_SESSION_KEY), ctypes.byref(found)
        )
        _check(major, minor)
        return found.contents.elements[0].bytes()
