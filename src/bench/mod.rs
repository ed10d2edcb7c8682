//! A load generator for a running service.
//!
//! Lanes are what loads it: each is a stream, or a caller of unary calls, with events of its own.
//! At a given rate the loop is open: calls are due by a schedule that waits for no answer, and the
//! time of a call begins when it was due, not when it could be sent, so that a service that stalls
//! is charged for every call that it kept waiting.

pub mod load;

pub mod events;

mod pacer;

mod lane;

mod stream;

mod unary;

pub mod tally;

pub mod cpu;

pub mod run;

pub mod report;
