//! The controller: state, lowering, southbound sessions, runtime.
