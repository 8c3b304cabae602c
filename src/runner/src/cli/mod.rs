//! The cli room.

pub mod logs;
pub mod ps;
pub mod records;
pub mod render;
pub mod show;
pub mod stop;
pub mod table;
