//! What files look like: parsers of bytes that anybody wrote. None of them opens anything, takes long, or needs more memory than a small
//! multiple of what it is given.

mod html;
pub(crate) mod notebook;
pub(crate) mod picture;
pub(crate) mod table;
pub(crate) mod text;
