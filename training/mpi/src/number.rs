//! What MPI can add up, and what it can only carry.

/// A type that MPI's own reductions know. There is no half precision here: MPI has no such type, so whoever
/// holds float16 or bfloat16 cannot name it to a reduction, and reduces with a schedule instead. A truth
/// value of one byte, 0 or 1, is reduced as [`Number::I8`] with [`Op::Max`] (or) and [`Op::Min`] (and).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Number {
    F32,
    F64,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
}

impl Number {
    /// Every number type.
    pub const ALL: [Self; 10] =
        [Self::F32, Self::F64, Self::I8, Self::U8, Self::I16, Self::U16, Self::I32, Self::U32, Self::I64, Self::U64];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }
}

/// Bytes of one element that is only carried, never added up: all that matters of float16 here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Width {
    /// The width of an element of `bytes` bytes, if there is one.
    pub const fn of(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            4 => Some(Self::Four),
            8 => Some(Self::Eight),
            _ => None,
        }
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// How a reduction joins two numbers. An average is not among MPI's: sum, then divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Op {
    Sum,
    Min,
    Max,
    Prod,
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is a [`Number`].
pub trait Numeric: Copy + Send + sealed::Sealed + 'static {
    /// Its name among MPI's types.
    const NUMBER: Number;
    /// Its width.
    const WIDTH: Width;
}

macro_rules! numeric {
    ($($rust:ty = $number:ident $width:ident;)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Numeric for $rust {
            const NUMBER: Number = Number::$number;
            const WIDTH: Width = Width::$width;
        }
    )*};
}

/// Two numbers and what becomes of them, as bytes in memory.
pub(crate) struct Probe {
    pub(crate) number: Number,
    pub(crate) op: Op,
    pub(crate) left: [u8; 8],
    pub(crate) right: [u8; 8],
    pub(crate) joined: [u8; 8],
}

macro_rules! probes {
    ($($rust:ty)*) => {
        /// One try of every number and operation, with the greatest value where order matters.
        pub(crate) fn probes() -> Vec<Probe> {
            let mut all = Vec::new();
            $({
                let [small, two, three]: [$rust; 3] = [1 as $rust, 2 as $rust, 3 as $rust];
                let great = <$rust>::MAX;
                for (op, left, right, joined) in [
                    (Op::Sum, small, two, three),
                    (Op::Min, small, great, small),
                    (Op::Max, great, small, great),
                    (Op::Prod, three, two, two + two + two),
                ] {
                    let bytes = |value: $rust| {
                        let mut word = [0; 8];
                        word[..size_of::<$rust>()].copy_from_slice(&value.to_ne_bytes());
                        word
                    };
                    let (left, right, joined) = (bytes(left), bytes(right), bytes(joined));
                    all.push(Probe { number: <$rust as Numeric>::NUMBER, op, left, right, joined });
                }
            })*
            all
        }
    };
}
probes! { f32 f64 i8 u8 i16 u16 i32 u32 i64 u64 }

numeric! {
    f32 = F32 Four;
    f64 = F64 Eight;
    i8 = I8 One;
    u8 = U8 One;
    i16 = I16 Two;
    u16 = U16 Two;
    i32 = I32 Four;
    u32 = U32 Four;
    i64 = I64 Eight;
    u64 = U64 Eight;
}
