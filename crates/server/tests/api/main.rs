//! The API as its clients have it: the router in this process, over a real daemon with a real journal, and an
//! engine of pretended processes.

mod behalf;
mod document;
mod events;
mod funding;
mod hostile;
mod limits;
mod metrics;
mod queue;
mod table;
mod world;
