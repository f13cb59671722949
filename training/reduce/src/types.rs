//! The element types and operations by name, and which go together.

use std::error::Error;
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 half precision; accumulated in single precision.
    F16,
    /// The upper half of a single; accumulated in single precision.
    BF16,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
    /// One byte: zero is false, anything else true; results are 0 or 1.
    Bool,
}

impl DType {
    /// Every type, once.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::BF16,
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The name PyTorch gives the type, without its `torch.`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::Bool => "bool",
        }
    }

    /// The type with that [name](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether the type has fractions.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What is done with the elements that lie at the same place in several tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Their sum; integers wrap; of truth values: whether any is true.
    Sum,
    /// Their sum, divided once at the end by the number of ranks, of integers toward zero; not of truth values.
    Avg,
    /// The smallest; not a number if any is not; of truth values: whether all are true.
    Min,
    /// The greatest; not a number if any is not; of truth values: whether any is true.
    Max,
    /// Their product; integers wrap; of truth values: whether all are true.
    Prod,
}

impl ReduceOp {
    /// Every operation, once.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Avg, Self::Min, Self::Max, Self::Prod];

    /// The operation's name in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Prod => "prod",
        }
    }

    /// The operation with that [name](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Whether the operation has a meaning for elements of that type.
    pub const fn defined_for(self, dtype: DType) -> bool {
        match self {
            Self::Avg => !matches!(dtype, DType::Bool),
            Self::Sum | Self::Min | Self::Max | Self::Prod => true,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A reduction that has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// The operation is not defined for the type.
    Operation {
        /// The operation asked for.
        op: ReduceOp,
        /// The type it was asked for.
        dtype: DType,
    },
    /// Only an average divides at its end.
    Divisor {
        /// The operation that came with a divisor.
        op: ReduceOp,
    },
    /// An average over nobody.
    ZeroDivisor,
}

impl fmt::Display for Undefined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation { op, dtype } => write!(formatter, "`{op}` is not defined for `{dtype}` elements"),
            Self::Divisor { op } => write!(formatter, "`{op}` divides by nothing at its end, only `avg` does"),
            Self::ZeroDivisor => formatter.write_str("an average over zero ranks"),
        }
    }
}

impl Error for Undefined {}
