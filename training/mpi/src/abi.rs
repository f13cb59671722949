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
    /// The class of errors that says: a message was longer than the memory for it.
    pub(crate) truncated: c_int,
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
    truncated: 15,
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
    truncated: 14,
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
    truncated: 15,
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    /// Prints what a header says; handles too where they are numbers.
    const PROGRAM: &str = r#"
#include HEADER
#include <stddef.h>
#include <stdio.h>
#define WHOLE(name) printf("%s %ld\n", #name, (long)(name))
#define HANDLE(name) printf("%s %lu\n", #name, sizeof(name) == 4 ? (unsigned long)(unsigned)(size_t)(name) : (unsigned long)(size_t)(name))
int main(void) {
    WHOLE(MPI_ANY_SOURCE); WHOLE(MPI_ANY_TAG); WHOLE(MPI_UNDEFINED); WHOLE(MPI_IN_PLACE); WHOLE(MPI_STATUS_IGNORE);
    WHOLE(MPI_THREAD_SINGLE); WHOLE(MPI_THREAD_FUNNELED); WHOLE(MPI_THREAD_SERIALIZED); WHOLE(MPI_THREAD_MULTIPLE);
    WHOLE(MPI_COMM_TYPE_SHARED); WHOLE(MPI_TAG_UB); WHOLE(MPI_ERR_TRUNCATE); WHOLE(MPI_MAX_ERROR_STRING); WHOLE(MPI_MAX_LIBRARY_VERSION_STRING);
    WHOLE(sizeof(MPI_Status)); WHOLE(offsetof(MPI_Status, MPI_SOURCE)); WHOLE(offsetof(MPI_Status, MPI_TAG));
    WHOLE(offsetof(MPI_Status, MPI_ERROR)); WHOLE(sizeof(MPI_Comm));
#ifdef NUMBERS
    HANDLE(MPI_COMM_WORLD); HANDLE(MPI_COMM_NULL); HANDLE(MPI_REQUEST_NULL); HANDLE(MPI_INFO_NULL);
    HANDLE(MPI_ERRORS_RETURN); HANDLE(MPI_FLOAT); HANDLE(MPI_DOUBLE); HANDLE(MPI_INT8_T); HANDLE(MPI_UINT8_T);
    HANDLE(MPI_INT16_T); HANDLE(MPI_UINT16_T); HANDLE(MPI_INT32_T); HANDLE(MPI_UINT32_T); HANDLE(MPI_INT64_T);
    HANDLE(MPI_UINT64_T); HANDLE(MPI_BYTE); HANDLE(MPI_SUM); HANDLE(MPI_MIN); HANDLE(MPI_MAX); HANDLE(MPI_PROD);
#endif
    return 0;
}
"#;

    /// The folders of installed headers, with the interface each describes.
    fn headers() -> Vec<(Abi, PathBuf, &'static str)> {
        let mut found = Vec::new();
        for compiler in ["mpicc.openmpi", "mpicc.mpich", "mpicc"] {
            for question in ["--showme:compile", "-show"] {
                let Ok(answer) = Command::new(compiler).arg(question).output() else { continue };
                let text = String::from_utf8_lossy(&answer.stdout).into_owned();
                for folder in text.split_whitespace().filter_map(|word| word.strip_prefix("-I")).map(PathBuf::from) {
                    let Ok(header) = std::fs::read_to_string(folder.join("mpi.h")) else { continue };
                    let abi = if header.contains("OMPI_MAJOR_VERSION") { Abi::OpenMpi } else { Abi::Mpich };
                    if !found.iter().any(|(_, earlier, _)| *earlier == folder) {
                        found.push((abi, folder, "mpi.h"));
                    }
                }
            }
        }
        if let Some(wheels) = std::env::var_os("EIRENE_TEST_MPI_WHEELS") {
            let folder = PathBuf::from(wheels).join("include");
            if folder.join("mpi_abi.h").exists() {
                found.push((Abi::Standard, folder, "mpi_abi.h"));
            }
        }
        found
    }

    fn printed(folder: &Path, header: &str, numbers: bool) -> BTreeMap<String, i64> {
        let place = tempfile::tempdir().unwrap();
        let (source, program) = (place.path().join("print.c"), place.path().join("print"));
        std::fs::write(&source, PROGRAM).unwrap();
        let mut compiler = Command::new("cc");
        compiler.arg(format!("-DHEADER=\"{header}\"")).arg("-I").arg(folder).arg("-o").arg(&program).arg(&source);
        if numbers {
            compiler.arg("-DNUMBERS");
        }
        let compiled = compiler.output().expect("the test of constants needs a C compiler `cc`");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let text = Command::new(&program).output().unwrap();
        String::from_utf8(text.stdout)
            .unwrap()
            .lines()
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                (name.to_owned(), value.parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn constants_are_those_of_installed_headers() {
        let headers = headers();
        assert!(!headers.is_empty(), "no MPI header is installed (libopenmpi-dev or libmpich-dev) to compare with");
        for (abi, folder, header) in headers {
            let says = printed(&folder, header, abi != Abi::OpenMpi);
            let place = |name: &str| usize::try_from(says[name]).unwrap() / size_of::<c_int>();
            let whole = |name: &str| c_int::try_from(says[name]).unwrap();
            let size = |name: &str| usize::try_from(says[name]).unwrap();
            let expected = Integers {
                any_source: whole("MPI_ANY_SOURCE"),
                any_tag: whole("MPI_ANY_TAG"),
                undefined: whole("MPI_UNDEFINED"),
                in_place: says["MPI_IN_PLACE"] as isize,
                status_ignore: says["MPI_STATUS_IGNORE"] as isize,
                threads: [
                    whole("MPI_THREAD_SINGLE"),
                    whole("MPI_THREAD_FUNNELED"),
                    whole("MPI_THREAD_SERIALIZED"),
                    whole("MPI_THREAD_MULTIPLE"),
                ],
                shared: whole("MPI_COMM_TYPE_SHARED"),
                tag_limit: whole("MPI_TAG_UB"),
                truncated: whole("MPI_ERR_TRUNCATE"),
                status_bytes: size("sizeof(MPI_Status)"),
                status_places: [
                    place("offsetof(MPI_Status, MPI_SOURCE)"),
                    place("offsetof(MPI_Status, MPI_TAG)"),
                    place("offsetof(MPI_Status, MPI_ERROR)"),
                ],
                error_text: size("MPI_MAX_ERROR_STRING"),
                version_text: size("MPI_MAX_LIBRARY_VERSION_STRING"),
            };
            assert_eq!(abi.integers(), expected, "{abi} by {}", folder.display());
            assert!(expected.status_bytes <= size_of::<Status>());
            assert_eq!(abi.handles() == Handles::Short, size("sizeof(MPI_Comm)") == size_of::<c_int>());
            if abi == Abi::OpenMpi {
                continue;
            }
            let constants = abi.constants(&|_| None).unwrap();
            let handle = |name: &str| Handle(size(name));
            assert_eq!(constants.world, handle("MPI_COMM_WORLD"));
            assert_eq!(constants.no_communicator, handle("MPI_COMM_NULL"));
            assert_eq!(constants.no_request, handle("MPI_REQUEST_NULL"));
            assert_eq!(constants.no_info, handle("MPI_INFO_NULL"));
            assert_eq!(constants.errors_return, handle("MPI_ERRORS_RETURN"));
            assert_eq!(constants.byte, handle("MPI_BYTE"));
            for (number, name) in Number::ALL.into_iter().zip([
                "FLOAT", "DOUBLE", "INT8_T", "UINT8_T", "INT16_T", "UINT16_T", "INT32_T", "UINT32_T", "INT64_T",
                "UINT64_T",
            ]) {
                assert_eq!(constants.number(number), handle(&format!("MPI_{name}")), "{abi}: {name}");
            }
            for (op, name) in [(Op::Sum, "SUM"), (Op::Min, "MIN"), (Op::Max, "MAX"), (Op::Prod, "PROD")] {
                assert_eq!(constants.op(op), handle(&format!("MPI_{name}")), "{abi}: {name}");
            }
        }
    }
}
