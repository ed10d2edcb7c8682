//! The admission server.
