//! Bad input is named, with the place and the remedy.
