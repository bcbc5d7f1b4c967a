//! Hand-written histories that keep the rules, and for each rule what one wrong line makes of them.

mod dsl;
mod holds;
mod hosts;
mod losses;
mod order;
mod placement;
mod promises;
mod reading;
mod shares;
mod swaps;
