//! Opening a library and recognising it by its symbols.
#![expect(unsafe_code, reason = "dlopen, and the first calls into what it opened")]

use std::ffi::{CStr, CString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::{c_char, c_int, c_void};

use crate::abi::{Abi, Constants};
use crate::error::Error;
use crate::ffi::{self, Api};

/// Whose launcher a library understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI.
    OpenMpi,
    /// MPICH and its kin: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
}

/// What a library knows of PMIx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pmix {
    /// Nothing.
    Absent,
    /// It has one, of a version that could not be told.
    Unknown,
    /// Major and minor.
    Version(u32, u32),
}

impl fmt::Display for Pmix {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => to.write_str("none"),
            Self::Unknown => to.write_str("of unknown version"),
            Self::Version(major, minor) => write!(to, "{major}.{minor}"),
        }
    }
}

/// What an opened library is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The interface it is spoken to in.
    pub abi: Abi,
    /// Whose it is.
    pub family: Family,
    /// Name and version, as `Open MPI 4.1.4`.
    pub name: String,
    /// The version of the MPI standard it keeps.
    pub standard: (u32, u32),
    /// The file that was loaded.
    pub path: PathBuf,
    /// Its PMIx.
    pub pmix: Pmix,
    /// Whether it knows PMI 1 or 2.
    pub pmi: bool,
}

impl Identity {
    /// The library's own major version; 0 where its name does not tell.
    pub(crate) fn major(&self) -> u32 {
        version_in(&self.name).map_or(0, |(major, _)| major)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} ({})", self.name, self.path.display())
    }
}

/// An MPI library, opened and recognised, not yet started.
pub struct Library {
    identity: Identity,
    opened: Opened,
    pub(crate) api: Box<dyn Api>,
    pub(crate) constants: Constants,
}

impl fmt::Debug for Library {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Library").field(&self.identity).finish()
    }
}

/// The loader's handle; closed when dropped, unless kept.
struct Opened {
    handle: *mut c_void,
    file: CString,
}

// SAFETY: the loader's handles may be used by any thread.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen and is closed once; addresses taken from it go with the library
        // that owns this value, or stay good because `keep` holds a second reference.
        unsafe { libc::dlclose(self.handle) };
    }
}

impl Opened {
    fn new(library: &Path, flags: c_int) -> Result<Self, String> {
        let file = CString::new(library.as_os_str().as_bytes()).map_err(|_| "its name holds a zero byte".to_owned())?;
        // SAFETY: the name is a C string. Opening runs the library's constructors: that is what is asked for.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | flags) };
        if handle.is_null() {
            // SAFETY: dlerror returns null or a C string that stays until this thread's next call.
            let message = unsafe { libc::dlerror() };
            return Err(if message.is_null() {
                "the loader does not say why".to_owned()
            } else {
                // SAFETY: as above.
                unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
            });
        }
        Ok(Self { handle, file })
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and the name is a C string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// The file a symbol of this library lies in.
    fn file_of(&self, name: &CStr) -> Option<PathBuf> {
        let address = self.symbol(name)?;
        // SAFETY: all-zero is a good `Dl_info`, and dladdr only writes into it.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        if unsafe { libc::dladdr(address, &raw mut found) } == 0 || found.dli_fname.is_null() {
            return None;
        }
        // SAFETY: dladdr gave a C string that stays as long as the library.
        let name = unsafe { CStr::from_ptr(found.dli_fname) };
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
    }
}

impl Library {
    /// Opens a library and finds out what it is. Nothing of MPI is started.
    pub fn open(library: &Path) -> Result<Self, Error> {
        let opened = Opened::new(library, libc::RTLD_LOCAL)
            .map_err(|message| Error::Open { library: library.to_owned(), message })?;
        Self::recognise(opened, library).map_err(|message| Error::NotMpi { library: library.to_owned(), message })
    }

    fn recognise(opened: Opened, asked: &Path) -> Result<Self, String> {
        let symbol = |name: &CStr| opened.symbol(name);
        let path = opened.file_of(c"MPI_Init_thread").ok_or("it has no function MPI_Init_thread")?;
        let text = library_version(&opened)?;
        let abi = recognise_abi(&opened, &path, &text)?;
        let family = if symbol(c"ompi_mpi_comm_world").is_some() || text.starts_with("Open MPI") {
            Family::OpenMpi
        } else {
            Family::Mpich
        };
        let constants = abi.constants(&symbol)?;
        let api = ffi::load(abi.handles(), &symbol)?;
        let path = if asked.is_absolute() { asked.to_owned() } else { path };
        let pmix = pmix(&opened, family, &path);
        let identity = Identity {
            abi,
            family,
            name: short_name(&text),
            standard: standard(&opened)?,
            pmi: family == Family::Mpich || plugin(&path, "mca_pmix_s2.so") || plugin(&path, "mca_pmix_s1.so"),
            pmix,
            path,
        };
        Ok(Self { identity, opened, api, constants })
    }

    /// What it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether MPI is initialised in this process already (by mpi4py, say).
    pub(crate) fn is_running(&self) -> bool {
        let mut flag: c_int = 0;
        // SAFETY: MPI_Initialized may be called at any time.
        unsafe { self.api.initialized(&raw mut flag) == 0 && flag != 0 }
    }

    /// Whether MPI was finalised in this process.
    pub(crate) fn is_over(&self) -> bool {
        let mut flag: c_int = 0;
        // SAFETY: MPI_Finalized may be called at any time.
        unsafe { self.api.finalized(&raw mut flag) == 0 && flag != 0 }
    }

    /// Keeps the library in the process for good, its symbols open to the plug-ins it will load.
    pub(crate) fn keep(&self) -> Result<(), Error> {
        let path = Path::new(std::ffi::OsStr::from_bytes(self.opened.file.as_bytes()));
        let second = Opened::new(path, libc::RTLD_GLOBAL | libc::RTLD_NODELETE)
            .map_err(|message| Error::Open { library: self.identity.path.clone(), message })?;
        drop(second);
        Ok(())
    }
}

/// Which of the three: the standard ABI says so itself (a library in its own ABI answers -1); Open MPI's has
/// its world as an object; MPICH's is known by the name in its version.
fn recognise_abi(opened: &Opened, path: &Path, text: &str) -> Result<Abi, String> {
    let objects = opened.symbol(c"ompi_mpi_comm_world").is_some();
    if standard_abi(opened) {
        // Open MPI's standard library stands on its own one, whose objects are then seen as well.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !objects || name.starts_with("libmpi_abi") {
            return Ok(Abi::Standard);
        }
    }
    if objects {
        return Ok(Abi::OpenMpi);
    }
    if ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"].iter().any(|name| text.contains(name)) {
        return Ok(Abi::Mpich);
    }
    Err(format!("its version is `{}`", short_name(text)))
}

fn standard_abi(opened: &Opened) -> bool {
    let Some(address) = opened.symbol(c"MPI_Abi_get_version") else { return false };
    // SAFETY: the standard gives this function this type in every ABI, and allows it before MPI_Init.
    let ask =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(address) };
    let (mut major, mut minor): (c_int, c_int) = (-1, -1);
    // SAFETY: both places are good for a C int.
    (unsafe { ask(&raw mut major, &raw mut minor) }) == 0 && major >= 1
}

fn library_version(opened: &Opened) -> Result<String, String> {
    let address = opened.symbol(c"MPI_Get_library_version").ok_or("it has no function MPI_Get_library_version")?;
    // SAFETY: the standard gives this function this type in every ABI, and allows it before MPI_Init.
    let ask =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(address) };
    // As much as the longest of the ABIs wants.
    let mut text = vec![0_u8; 8192 + 1];
    let mut length: c_int = 0;
    // SAFETY: the buffer is as long as the longest version text of any ABI.
    if unsafe { ask(text.as_mut_ptr().cast(), &raw mut length) } != 0 {
        return Err("MPI_Get_library_version fails".to_owned());
    }
    text.truncate(usize::try_from(length).unwrap_or(0));
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn standard(opened: &Opened) -> Result<(u32, u32), String> {
    let address = opened.symbol(c"MPI_Get_version").ok_or("it has no function MPI_Get_version")?;
    // SAFETY: the standard gives this function this type in every ABI, and allows it before MPI_Init.
    let ask =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(address) };
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: both places are good for a C int.
    if unsafe { ask(&raw mut major, &raw mut minor) } != 0 {
        return Err("MPI_Get_version fails".to_owned());
    }
    Ok((major.unsigned_abs(), minor.unsigned_abs()))
}

/// `Open MPI v4.1.4, package: …` → `Open MPI 4.1.4`; `MPICH Version:\t4.0.2\n…` → `MPICH 4.0.2`.
fn short_name(text: &str) -> String {
    let first = text.split(['\n', ',']).next().unwrap_or_default();
    let words: Vec<&str> = first
        .split_whitespace()
        .filter(|word| !word.eq_ignore_ascii_case("version:") && !word.eq_ignore_ascii_case("version"))
        .map(|word| match word.strip_prefix('v') {
            Some(number) if number.starts_with(|c: char| c.is_ascii_digit()) => number,
            _ => word,
        })
        .take(8)
        .collect();
    words.join(" ")
}

/// Whether the library keeps a plug-in of this name in one of the places where Open MPI keeps them.
fn plugin(library: &Path, name: &str) -> bool {
    let real = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let Some(folder) = real.parent() else { return false };
    ["openmpi", "openmpi3", "openmpi/lib/openmpi3", "openmpi/lib/openmpi"]
        .iter()
        .any(|below| folder.join(below).join(name).exists())
}

/// Open MPI has PMIx linked in (5), as a plug-in with its own copy (`pmix3x`), or as a plug-in that uses the
/// system's; MPICH only where it was built so.
fn pmix(opened: &Opened, family: Family, path: &Path) -> Pmix {
    if opened.symbol(c"PMIx_Init").is_some() {
        return pmix_version(opened);
    }
    match family {
        Family::Mpich => Pmix::Absent,
        Family::OpenMpi if plugin(path, "mca_pmix_pmix3x.so") => Pmix::Version(3, 0),
        Family::OpenMpi if plugin(path, "mca_pmix_ext3x.so") => {
            Opened::new(Path::new("libpmix.so.2"), libc::RTLD_LOCAL).map_or(Pmix::Unknown, |own| pmix_version(&own))
        }
        Family::OpenMpi => Pmix::Unknown,
    }
}

fn pmix_version(opened: &Opened) -> Pmix {
    let Some(address) = opened.symbol(c"PMIx_Get_version") else { return Pmix::Unknown };
    // SAFETY: this is the function's type in every PMIx; it may be called before PMIx_Init.
    let ask = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(address) };
    // SAFETY: it returns a static C string, or null.
    let text = unsafe {
        let text = ask();
        if text.is_null() {
            return Pmix::Unknown;
        }
        CStr::from_ptr(text).to_string_lossy()
    };
    version_in(&text).map_or(Pmix::Unknown, |(major, minor)| Pmix::Version(major, minor))
}

/// The first `N.M` in a text such as `OpenPMIx 4.2.2rc2 (PMIx Standard: 4.1, …)`.
fn version_in(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|part| {
        let (major, rest) = part.split_once('.')?;
        Some((major.parse().ok()?, rest.split('.').next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_carry_the_version() {
        assert_eq!(short_name("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"), "Open MPI 4.1.4");
        assert_eq!(short_name("MPICH Version:\t4.0.2\nMPICH Release date:\tThu"), "MPICH 4.0.2");
        assert_eq!(
            short_name("Intel(R) MPI Library 2021.11 for Linux* OS\n"),
            "Intel(R) MPI Library 2021.11 for Linux* OS"
        );
    }

    #[test]
    fn a_pmix_version_is_the_first_in_its_text() {
        assert_eq!(version_in("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.1, Stable ABI: 0.0)"), Some((4, 2)));
        assert_eq!(version_in("OpenPMIx 5.0.11rc1, repo rev: v5"), Some((5, 0)));
        assert_eq!(version_in("unknown"), None);
    }
}
