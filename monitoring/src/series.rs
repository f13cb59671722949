//! A metric of a device, and its textual name: `cpu_seconds`, `cpu_core/3`, `io_read_bytes//scratch`, `cpu_process/4711:python`.
//!
//! What stands behind the first slash is read by what the metric may be of, so any path can be a device and every name has one reading.

use std::fmt;
use std::str::FromStr;

use crate::MOST_TEXT;
use crate::metric::Metric;

/// Sorts of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A processor core, as the kernel counts them.
    Core,
    /// A mounted file system, by its path.
    Mount,
    /// A network interface, or a port of an adapter that goes past interfaces, as `mlx5_0:1`.
    Interface,
    /// A GPU, by index or by UUID.
    Gpu,
    /// A process.
    Process,
    /// A name that a program chose.
    Name,
}

impl DeviceKind {
    /// The label of Prometheus that says of which device a sample is.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Mount => "mount",
            Self::Interface => "interface",
            Self::Gpu => "gpu",
            Self::Process => "process",
            Self::Name => "name",
        }
    }
}

/// A name that came from elsewhere: 1 to [`MOST_TEXT`] bytes without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(String);

/// What is no name of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Nothing.
    #[error("the name of a device is empty")]
    Empty,
    /// Longer than [`MOST_TEXT`].
    #[error("the name of a device has {0} bytes, at most {MOST_TEXT} are taken")]
    TooLong(usize),
    /// A control character.
    #[error("the name of a device has a control character")]
    Control,
}

impl Text {
    /// What is left of a name when control characters become `?` and what is too long is cut: for names that the kernel passes on from
    /// programs. None of an empty one.
    pub fn lossy(text: &str) -> Option<Self> {
        let clean = |character: char| if character.is_control() { '?' } else { character };
        let mut kept = String::new();
        for character in text.chars().map(clean) {
            if kept.len() + character.len_utf8() > MOST_TEXT {
                break;
            }
            kept.push(character);
        }
        (!kept.is_empty()).then_some(Self(kept))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for Text {
    type Error = TextError;

    fn try_from(text: &str) -> Result<Self, TextError> {
        if text.is_empty() {
            return Err(TextError::Empty);
        }
        if text.len() > MOST_TEXT {
            return Err(TextError::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(TextError::Control);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A process: its number, and the name that it gave itself (proc_pid_comm(5)).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Its number on the node.
    pub id: u32,
    /// Its name: anything the program likes.
    pub name: Text,
}

/// What a figure is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// A processor core.
    Core(u16),
    /// A mounted file system.
    Mount(Text),
    /// A network interface.
    Interface(Text),
    /// A GPU.
    Gpu(Text),
    /// A process.
    Process(Process),
    /// A name that a program chose.
    Name(Text),
}

impl Device {
    /// Its sort.
    pub fn kind(&self) -> DeviceKind {
        match self {
            Self::Core(_) => DeviceKind::Core,
            Self::Mount(_) => DeviceKind::Mount,
            Self::Interface(_) => DeviceKind::Interface,
            Self::Gpu(_) => DeviceKind::Gpu,
            Self::Process(_) => DeviceKind::Process,
            Self::Name(_) => DeviceKind::Name,
        }
    }

    fn parse(kind: DeviceKind, text: &str) -> Result<Self, SeriesError> {
        let wrong = || SeriesError::Device(Text::lossy(text).map(|text| text.0).unwrap_or_default());
        Ok(match kind {
            DeviceKind::Core => Self::Core(number(text).ok_or_else(wrong)?),
            DeviceKind::Mount if !text.starts_with('/') => return Err(wrong()),
            DeviceKind::Mount => Self::Mount(text.try_into()?),
            DeviceKind::Interface | DeviceKind::Gpu if text.contains('/') => return Err(wrong()),
            DeviceKind::Interface => Self::Interface(text.try_into()?),
            DeviceKind::Gpu => Self::Gpu(text.try_into()?),
            DeviceKind::Process => {
                let (id, name) = text.split_once(':').ok_or_else(wrong)?;
                Self::Process(Process { id: number(id).ok_or_else(wrong)?, name: name.try_into()? })
            }
            DeviceKind::Name if !is_report_name(text) => return Err(wrong()),
            DeviceKind::Name => Self::Name(text.try_into()?),
        })
    }
}

/// A number as we write it: no sign, no zeros in front, so that every series has one name.
fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse::<T>().ok().filter(|number| number.to_string() == text)
}

/// Whether programs may report under a name: `[a-z_][a-z0-9_]{0,31}`.
pub fn is_report_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=32).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with(|first: char| first.is_ascii_digit())
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core(core) => write!(formatter, "{core}"),
            Self::Mount(text) | Self::Interface(text) | Self::Gpu(text) | Self::Name(text) => text.fmt(formatter),
            Self::Process(process) => write!(formatter, "{}:{}", process.id, process.name),
        }
    }
}

/// A metric, of a device where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series {
    metric: Metric,
    device: Option<Device>,
}

/// What is no series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// No such metric, or longer than any series is.
    #[error("no such metric")]
    Metric,
    /// Not a device of the sort that this metric is of.
    #[error("`{0}` is no device that this metric is of")]
    Device(String),
    /// A device is missing.
    #[error("`{0}` has to be of a device")]
    NoDevice(&'static str),
    /// Its name cannot be taken.
    #[error(transparent)]
    Text(#[from] TextError),
}

impl Series {
    /// A metric of no device.
    ///
    /// # Errors
    /// [`SeriesError::NoDevice`].
    pub fn of(metric: Metric) -> Result<Self, SeriesError> {
        if !metric.stands_alone() {
            return Err(SeriesError::NoDevice(metric.name()));
        }
        Ok(Self { metric, device: None })
    }

    /// A metric of a device.
    ///
    /// # Errors
    /// [`SeriesError::Device`].
    pub fn with(metric: Metric, device: Device) -> Result<Self, SeriesError> {
        // Read as it would be written: what cannot be read back is not made.
        let kind = device.kind();
        if !metric.devices().contains(&kind) {
            return Err(SeriesError::Device(device.to_string()));
        }
        Device::parse(kind, &device.to_string())?;
        Ok(Self { metric, device: Some(device) })
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The device.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }
}

impl fmt::Display for Series {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.metric.name())?;
        self.device.iter().try_for_each(|device| write!(formatter, "/{device}"))
    }
}

impl FromStr for Series {
    type Err = SeriesError;

    fn from_str(text: &str) -> Result<Self, SeriesError> {
        let (name, device) = text.split_once('/').map_or((text, None), |(name, device)| (name, Some(device)));
        let metric = Metric::by_name(name).ok_or(SeriesError::Metric)?;
        let Some(device) = device else { return Self::of(metric) };
        let wrong = || SeriesError::Device(Text::lossy(device).map(|text| text.0).unwrap_or_default());
        let kind = metric.devices().first().ok_or_else(wrong)?;
        Ok(Self { metric, device: Some(Device::parse(*kind, device)?) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn series_have_one_textual_name() {
        for text in [
            "cpu_seconds",
            "cpu_core/3",
            "io_read_bytes",
            "io_read_bytes//",
            "io_read_bytes//a/b c",
            "gpu_util/0",
            "report/f1",
            "report/_5",
        ] {
            assert_eq!(text.parse::<Series>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "/",
            "cpu",
            "cpu_seconds/",
            "cpu_seconds/3",
            "cpu_core",
            "cpu_core/03",
            "cpu_core/+3",
            "cpu_core/65536",
            "gpu_util/a/b",
            "io_read_bytes/a",
            "cpu_process/1",
            "cpu_process/1:",
            "cpu_process/:a",
            "report/Loss",
            "report/5",
            "report/1st",
            "report/f-1",
            "report/",
            "net_receive_bytes/a\n",
        ] {
            assert!(text.parse::<Series>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_device_of_another_sort_is_refused() {
        let device = Device::Core(0);
        assert!(Series::with(Metric::GpuUtil, device.clone()).is_err());
        assert!(Series::with(Metric::Cpu, device).is_err());
        assert!(Series::with(Metric::IoRead, Device::Mount(Text::lossy("relative").unwrap())).is_err());
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(text in "\\PC{0,160}") {
            for metric in Metric::ALL {
                let name = format!("{}/{text}", metric.name());
                if let Ok(series) = name.parse::<Series>() {
                    prop_assert_eq!(series.to_string(), name);
                }
            }
        }

        #[test]
        fn any_name_can_be_made_to_fit(text in any::<String>()) {
            match Text::lossy(&text) {
                None => prop_assert!(text.is_empty()),
                Some(kept) => prop_assert_eq!(Text::try_from(kept.as_str()), Ok(kept)),
            }
        }
    }
}
