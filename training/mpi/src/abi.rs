//! The constants of the three ABIs. Values are facts of the standard (MPI 5.0, chapter on the ABI) and of the
//! two libraries' published binary interfaces; a test prints them from installed headers and compares.

use libc::c_int;

use crate::ffi::{Handle, Handles, Status};
use crate::number::{Number, Op, Width};

/// A binary interface of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// Open MPI's own: handles are addresses of the library's objects.
    OpenMpi,
    /// MPICH's, shared by Intel MPI, MVAPICH and Cray MPICH: handles are numbers.
    Mpich,
    /// The standard one of MPI 5: handles are small numbers in pointers.
    Standard,
}

impl std::fmt::Display for Abi {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::OpenMpi => "Open MPI's ABI",
            Self::Mpich => "MPICH's ABI",
            Self::Standard => "the standard MPI ABI",
        })
    }
}

/// The values of one opened library.
#[derive(Debug, Clone)]
pub(crate) struct Constants {
    pub(crate) world: Handle,
    pub(crate) no_communicator: Handle,
    pub(crate) no_request: Handle,
    pub(crate) no_info: Handle,
    pub(crate) errors_return: Handle,
    pub(crate) numbers: [Handle; 10],
    pub(crate) byte: Handle,
    pub(crate) ops: [Handle; 4],
    pub(crate) whole: Integers,
}

/// The values that are plain integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Integers {
    pub(crate) any_source: c_int,
    pub(crate) any_tag: c_int,
    pub(crate) undefined: c_int,
    pub(crate) in_place: isize,
    pub(crate) status_ignore: isize,
    /// Single, funneled, serialized, multiple.
    pub(crate) threads: [c_int; 4],
    pub(crate) shared: c_int,
    pub(crate) tag_limit: c_int,
    pub(crate) status_bytes: usize,
    /// Places of source, tag and error in a status, counted in C ints.
    pub(crate) status_places: [usize; 3],
    pub(crate) error_text: usize,
    pub(crate) version_text: usize,
}

const OPEN_MPI: Integers = Integers {
    any_source: -1,
    any_tag: -1,
    undefined: -32766,
    in_place: 1,
    status_ignore: 0,
    threads: [0, 1, 2, 3],
    shared: 0,
    tag_limit: 0,
    status_bytes: 24,
    status_places: [0, 1, 2],
    error_text: 256,
    version_text: 256,
};

const MPICH: Integers = Integers {
    any_source: -2,
    any_tag: -1,
    undefined: -32766,
    in_place: -1,
    status_ignore: 1,
    threads: [0, 1, 2, 3],
    shared: 1,
    tag_limit: 0x6440_0001,
    status_bytes: 20,
    status_places: [2, 3, 4],
    error_text: 512,
    version_text: 8192,
};

const STANDARD: Integers = Integers {
    any_source: -1,
    any_tag: -2,
    undefined: -32766,
    in_place: 1,
    status_ignore: 0,
    threads: [0, 1024, 2048, 4096],
    shared: 221,
    tag_limit: 501,
    status_bytes: 32,
    status_places: [0, 1, 2],
    error_text: 512,
    version_text: 8192,
};

/// The order of `Constants::numbers`, as the two ABIs with fixed numbers have them.
const MPICH_NUMBERS: [usize; 10] = [
    0x4c00_040a, // float
    0x4c00_080b, // double
    0x4c00_0137, // int8_t
    0x4c00_013b, // uint8_t
    0x4c00_0238, // int16_t
    0x4c00_023c, // uint16_t
    0x4c00_0439, // int32_t
    0x4c00_043d, // uint32_t
    0x4c00_083a, // int64_t
    0x4c00_083e, // uint64_t
];
const STANDARD_NUMBERS: [usize; 10] = [0x210, 0x214, 0x240, 0x241, 0x248, 0x249, 0x250, 0x251, 0x258, 0x259];
const OPEN_MPI_NUMBERS: [&std::ffi::CStr; 10] = [
    c"ompi_mpi_float",
    c"ompi_mpi_double",
    c"ompi_mpi_int8_t",
    c"ompi_mpi_uint8_t",
    c"ompi_mpi_int16_t",
    c"ompi_mpi_uint16_t",
    c"ompi_mpi_int32_t",
    c"ompi_mpi_uint32_t",
    c"ompi_mpi_int64_t",
    c"ompi_mpi_uint64_t",
];

impl Abi {
    pub(crate) fn handles(self) -> Handles {
        match self {
            Self::Mpich => Handles::Short,
            Self::OpenMpi | Self::Standard => Handles::Pointer,
        }
    }

    pub(crate) fn integers(self) -> Integers {
        match self {
            Self::OpenMpi => OPEN_MPI,
            Self::Mpich => MPICH,
            Self::Standard => STANDARD,
        }
    }

    /// The constants; `address` looks an object of the library up (only Open MPI's are objects).
    pub(crate) fn constants(
        self,
        address: &dyn Fn(&std::ffi::CStr) -> Option<*mut libc::c_void>,
    ) -> Result<Constants, String> {
        let object = |name: &std::ffi::CStr| {
            address(name)
                .map(|found| Handle(found as usize))
                .ok_or_else(|| format!("it has no object {}", name.to_string_lossy()))
        };
        let whole = self.integers();
        Ok(match self {
            Self::OpenMpi => {
                let mut numbers = [Handle(0); 10];
                for (slot, name) in numbers.iter_mut().zip(OPEN_MPI_NUMBERS) {
                    *slot = object(name)?;
                }
                Constants {
                    world: object(c"ompi_mpi_comm_world")?,
                    no_communicator: object(c"ompi_mpi_comm_null")?,
                    no_request: object(c"ompi_request_null")?,
                    no_info: object(c"ompi_mpi_info_null")?,
                    errors_return: object(c"ompi_mpi_errors_return")?,
                    numbers,
                    byte: object(c"ompi_mpi_byte")?,
                    ops: [
                        object(c"ompi_mpi_op_sum")?,
                        object(c"ompi_mpi_op_min")?,
                        object(c"ompi_mpi_op_max")?,
                        object(c"ompi_mpi_op_prod")?,
                    ],
                    whole,
                }
            }
            Self::Mpich => Constants {
                world: Handle(0x4400_0000),
                no_communicator: Handle(0x0400_0000),
                no_request: Handle(0x2c00_0000),
                no_info: Handle(0x1c00_0000),
                errors_return: Handle(0x5400_0001),
                numbers: MPICH_NUMBERS.map(Handle),
                byte: Handle(0x4c00_010d),
                ops: [0x5800_0003, 0x5800_0002, 0x5800_0001, 0x5800_0004].map(Handle),
                whole,
            },
            Self::Standard => Constants {
                world: Handle(0x101),
                no_communicator: Handle(0x100),
                no_request: Handle(0x180),
                no_info: Handle(0x130),
                errors_return: Handle(0x143),
                numbers: STANDARD_NUMBERS.map(Handle),
                byte: Handle(0x247),
                ops: [0x21, 0x22, 0x23, 0x24].map(Handle),
                whole,
            },
        })
    }
}

impl Constants {
    pub(crate) fn number(&self, number: Number) -> Handle {
        self.numbers[number as usize]
    }

    pub(crate) fn width(&self, width: Width) -> Handle {
        match width {
            Width::One => self.byte,
            Width::Two => self.number(Number::U16),
            Width::Four => self.number(Number::U32),
            Width::Eight => self.number(Number::U64),
        }
    }

    pub(crate) fn op(&self, op: Op) -> Handle {
        self.ops[op as usize]
    }

    pub(crate) fn source(&self, status: &Status) -> c_int {
        status.0[self.whole.status_places[0]]
    }

    pub(crate) fn tag(&self, status: &Status) -> c_int {
        status.0[self.whole.status_places[1]]
    }
}
