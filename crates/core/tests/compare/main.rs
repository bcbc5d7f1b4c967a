//! The policies that Bursar is compared with: against what others published, and on small worlds worked
//! out by hand.

mod fair_tree;
mod philly;
mod scenarios;
mod world;
