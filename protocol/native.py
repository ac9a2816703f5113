"""C functions of installed libraries, called from within kernels.

The Python function of a library gives up the GIL for every piece of work, and has to ask for it again behind
each: a cleaner that does so a hundred times in a few milliseconds collides with the event loop every time.
What lies underneath is called here by its address instead, so that one kernel does all pieces in one call.

Only functions that a library has had for years are named, each with its own types, and each (but those of
the C library) is tried on a known text before it is used. Where a library has another build the address is
`MISSING`, and whoever asks for it goes another way.
"""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType
from typing import Any, NamedTuple

from protocol.kernel import load_numba

MISSING = 0
ALL_ONES = 0xFFFFFFFF
"""what a CRC-32C begins with, and is turned by at its end"""

CHECK_TEXT = b"123456789" * 9


class NativeCall:
    """How a C function is called whose address is known only when it runs: `call(address, *numbers)`.

    All arguments are whole numbers, pointers too (`array.ctypes.data + position`). Nothing is checked: the
    caller answers for what lies behind a pointer. In plain Python the same call goes by ctypes.
    """

    def __init__(self, result: Any, *arguments: Any) -> None:
        self._types = (result, *arguments)
        self._prototype = ctypes.CFUNCTYPE(result, *arguments)

    def __call__(self, address: int, *numbers: int) -> int:
        return int(self._prototype(address)(*numbers))

    @functools.cached_property
    def _numba_type_(self) -> Any:
        """Asked by numba when it compiles a kernel that calls this."""
        made = _intrinsic(*self._types)
        from numba.core.registry import cpu_target

        for context in (cpu_target.typing_context, cpu_target.target_context):
            context.refresh()  # they learn of what was made since they were asked last
        return cpu_target.typing_context.resolve_value_type(made)


def _intrinsic(result: Any, *arguments: Any) -> Any:
    """Instructions in place of a call: the address is made a pointer to a function of these types."""
    types = load_numba().core.types
    from llvmlite import ir
    from numba.extending import intrinsic

    def number(of: Any) -> Any:
        kind = "int" if of(-1).value < 0 else "uint"
        return getattr(types, f"{kind}{8 * ctypes.sizeof(of)}")

    signature = number(result)(types.intp, *map(number, arguments))

    def generate(_: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, *taken = signature.args
        integers = [ir.IntType(each.bitwidth) for each in taken]
        function = ir.FunctionType(ir.IntType(signature.return_type.bitwidth), integers)
        return builder.call(builder.inttoptr(values[0], function.as_pointer()), values[1:])

    # numba goes by the number of names.
    def none(_: Any, address: Any) -> Any:
        return signature, generate

    def two(_: Any, address: Any, a: Any, b: Any) -> Any:
        return signature, generate

    def three(_: Any, address: Any, a: Any, b: Any, c: Any) -> Any:
        return signature, generate

    def four(_: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return signature, generate

    return intrinsic({0: none, 2: two, 3: three, 4: four}[len(arguments)])


crc32c_call = NativeCall(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_size_t)
"""(checksum so far, where bytes begin, how many): the checksum of these too; both turned by `ALL_ONES`"""
lz4_call = NativeCall(ctypes.c_int32, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int32)
"""(where bytes begin, where they go, how many, room there): how many were written; none or fewer: an error"""
pread_call = NativeCall(ctypes.c_int64, ctypes.c_int32, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64)
"""(descriptor, where bytes go, how many, position in the file): how many there were; below 0: an error"""
yield_call = NativeCall(ctypes.c_int32)
"""`sched_yield`"""
clock_call = NativeCall(ctypes.c_int32, ctypes.c_int32, ctypes.c_size_t)
"""(which clock, where two numbers of 64 bits go, seconds and nanoseconds): `clock_gettime`"""


class Lz4(NamedTuple):
    """Addresses of the functions for one block, both for `lz4_call`; both are there, or none."""

    decompress: int
    compress: int


@functools.cache
def crc32c_address() -> int:
    """Of the function that the library has chosen for this processor, for `crc32c_call`."""
    import crc32c

    try:
        from crc32c import _crc32c as built
    except ImportError:  # another way of building it
        return MISSING
    names = ["_crc32c_hw_adler", "_crc32c_hw_arm64"] if crc32c.hardware_based else []
    text = ctypes.create_string_buffer(CHECK_TEXT)
    for name in (*names, "_crc32c_sw_slicing_by_8"):
        address = _address(built, name)
        if address == MISSING:
            continue
        found = crc32c_call(address, ALL_ONES, ctypes.addressof(text), len(CHECK_TEXT))
        if found ^ ALL_ONES == crc32c.crc32c(CHECK_TEXT):
            return address
    return MISSING


@functools.cache
def lz4_addresses() -> Lz4:
    """Of lz4's own functions, which its package for Python brings."""
    names = ("LZ4_decompress_safe", "LZ4_compress_default")
    nothing = Lz4(MISSING, MISSING)
    try:
        from lz4.block import _block as built
    except ImportError:  # another way of building it
        return nothing
    found = Lz4(*(_address(built, name) for name in names))
    if MISSING in found:
        return nothing
    text = ctypes.create_string_buffer(CHECK_TEXT)
    packed, unpacked = (ctypes.create_string_buffer(len(CHECK_TEXT)) for _ in range(2))
    size = lz4_call(
        found.compress, ctypes.addressof(text), ctypes.addressof(packed), len(CHECK_TEXT), len(CHECK_TEXT)
    )
    again = lz4_call(
        found.decompress, ctypes.addressof(packed), ctypes.addressof(unpacked), size, len(CHECK_TEXT)
    )
    is_good = 0 < size < again == len(CHECK_TEXT) and unpacked.raw == CHECK_TEXT
    return found if is_good else nothing


@functools.cache
def libc_address(name: str) -> int:
    """Of a function of the C library that POSIX describes; sizes and positions in files are taken for 64
    bits wide.
    """
    if ctypes.sizeof(ctypes.c_long) != ctypes.sizeof(ctypes.c_int64):
        return MISSING
    function = getattr(ctypes.CDLL(None), name, None)
    return MISSING if function is None else ctypes.cast(function, ctypes.c_void_p).value or MISSING


def _address(built: ModuleType, name: str) -> int:
    try:
        function = getattr(ctypes.CDLL(built.__file__), name)
    except (OSError, AttributeError):
        return MISSING
    return ctypes.cast(function, ctypes.c_void_p).value or MISSING
