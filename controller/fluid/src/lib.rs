//! The fluid model: jobs that iterate on a network whose links serve strict classes, max-min fair
//! inside a class. Exact and event driven.
