//! YAML text to a tree of nodes that remember their lines.
//!
//! Built on the event parser inside serde-saphyr rather than on serde itself: scalars keep the text
//! that the user wrote (a share of `0.1` must not pass through a float), every key keeps its line,
//! and duplicate keys survive until the reader that knows what they would have named.
//!
//! Invariant: the work done is bounded by the length of the text plus [`ALIAS_NODES_MAX`], and no tree is
//! deeper than [`DEPTH_MAX`], so that recursion over nodes is safe. Absent on purpose: tags,
//! several documents, complex keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, options};

use crate::error::{ErrorKind, Fault};

/// The deepest nesting that is read. The deepest sensible scenario, a budget tree of 16 levels with
/// two YAML levels each, needs less than 40.
const DEPTH_MAX: usize = 64;
/// How many nodes aliases may add in all: room for any sharing a person writes, too few to hurt.
const ALIAS_NODES_MAX: usize = 100_000;

/// One YAML node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The line it starts on, counted from 1.
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `null`, `~` or nothing.
    Null,
    Scalar(Box<str>),
    List(Vec<Node>),
    /// In the order written, duplicates included.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) line: usize,
    pub(crate) text: Box<str>,
}

impl Node {
    /// What the node is, for messages.
    pub(crate) fn what(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a block of keys",
        }
    }
}

/// Reads the one document that `text` holds.
pub(crate) fn parse(text: &str) -> Result<Node, Fault> {
    let options = options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut composer = Composer::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| {
            let line = error.marker().line().max(1);
            Fault::new(ErrorKind::Syntax, line, format!("not valid YAML: {}", error.info()))
        })?;
        let line = span.start.line().max(1);
        if event.tag().is_some() {
            return Err(syntax(line, "tags (words that start with '!') have no meaning here"));
        }
        composer.take(event, line)?;
    }
    composer.root.ok_or_else(|| Fault::whole(ErrorKind::Missing, "the file is empty"))
}

fn syntax(line: usize, message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Syntax, line, message)
}

/// A collection under construction.
struct Frame {
    anchor: usize,
    node: Node,
    /// The key that waits for its value, in a map.
    key: Option<Key>,
    /// What `<<` named, merged when the map is complete.
    merges: Vec<Node>,
    /// Nodes inside, itself included; and levels, itself included.
    size: usize,
    height: usize,
}

/// A finished anchored node, with what copying it costs.
struct Anchored {
    node: Node,
    size: usize,
    height: usize,
}

#[derive(Default)]
struct Composer {
    frames: Vec<Frame>,
    anchors: BTreeMap<usize, Anchored>,
    alias_nodes: usize,
    root: Option<Node>,
}

impl Composer {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Fault> {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(syntax(line, "a second document starts here; a scenario is one document"))
            }
            Event::DocumentStart(..) => Ok(()),
            Event::Scalar(text, style, anchor, _) => {
                let value = match (&*text, style) {
                    ("" | "~" | "null" | "Null" | "NULL", ScalarStyle::Plain) => Value::Null,
                    (text, _) => Value::Scalar(text.into()),
                };
                self.place(Node { line, value }, anchor, 1, 1)
            }
            Event::SequenceStart(_, anchor, _) => self.open(Value::List(Vec::new()), anchor, line),
            Event::MappingStart(_, anchor, _) => self.open(Value::Map(Vec::new()), anchor, line),
            Event::SequenceEnd | Event::MappingEnd => match self.frames.pop() {
                Some(mut frame) => {
                    if let Value::Map(entries) = &mut frame.node.value {
                        merge(entries, std::mem::take(&mut frame.merges))?;
                    }
                    self.place(frame.node, frame.anchor, frame.size, frame.height)
                }
                None => Err(syntax(line, "a collection ends that never began")),
            },
            Event::Alias(anchor) => self.alias(anchor, line),
            // Only emitted when asked for; matched by name so that a new kind of event is noticed.
            Event::UnresolvedAlias(name) => Err(syntax(line, format!("unknown alias *{name}"))),
            Event::Anchor(..) | Event::Comment(..) => Ok(()),
            other => Err(syntax(line, format!("not understood: {other:?}"))),
        }
    }

    fn open(&mut self, value: Value, anchor: usize, line: usize) -> Result<(), Fault> {
        let level = self.frames.len() + 1;
        if level > DEPTH_MAX {
            return Err(syntax(line, format!("nested deeper than {DEPTH_MAX} levels")));
        }
        let node = Node { line, value };
        self.frames.push(Frame { anchor, node, key: None, merges: Vec::new(), size: 1, height: 1 });
        Ok(())
    }

    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), Fault> {
        if self.frames.iter().any(|frame| frame.anchor == anchor) {
            let path = self.path();
            let message = format!("{path}: this alias names a block that it lies in: a cycle");
            return Err(syntax(line, message));
        }
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(syntax(line, "unknown alias"));
        };
        let (size, height) = (anchored.size, anchored.height);
        self.alias_nodes = self.alias_nodes.saturating_add(size);
        if self.alias_nodes > ALIAS_NODES_MAX {
            let message = format!("aliases repeat more than {ALIAS_NODES_MAX} values in all");
            return Err(syntax(line, message));
        }
        if self.frames.len() + height > DEPTH_MAX {
            return Err(syntax(line, format!("nested deeper than {DEPTH_MAX} levels")));
        }
        let node = anchored.node.clone();
        self.place(node, 0, size, height)
    }

    /// Puts a finished node where it belongs.
    fn place(
        &mut self,
        node: Node,
        anchor: usize,
        size: usize,
        height: usize,
    ) -> Result<(), Fault> {
        if anchor != 0 {
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, height });
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        frame.size += size;
        frame.height = frame.height.max(height + 1);
        match &mut frame.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => match frame.key.take() {
                None => {
                    let text = match node.value {
                        Value::Scalar(text) => text,
                        Value::Null => "null".into(),
                        Value::List(_) | Value::Map(_) => {
                            return Err(syntax(node.line, "a key must be a single value"));
                        }
                    };
                    frame.key = Some(Key { line: node.line, text });
                }
                Some(key) if &*key.text == "<<" => frame.merges.push(node),
                Some(key) => entries.push((key, node)),
            },
            Value::Null | Value::Scalar(_) => {}
        }
        Ok(())
    }

    /// The keys that lead to the present place.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match (&frame.node.value, &frame.key) {
                (Value::Map(_), Some(key)) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&key.text);
                }
                (Value::List(items), _) => path.push_str(&format!("[{}]", items.len())),
                _ => {}
            }
        }
        path
    }
}

/// `<<: *base` or `<<: [*a, *b]`: adds the keys that the map lacks, those of earlier bases first.
fn merge(entries: &mut Vec<(Key, Node)>, merges: Vec<Node>) -> Result<(), Fault> {
    if merges.is_empty() {
        return Ok(());
    }
    let mut present: BTreeSet<Box<str>> = entries.iter().map(|(key, _)| key.text.clone()).collect();
    let mut bases = Vec::new();
    for node in merges {
        match node.value {
            Value::List(items) => bases.extend(items),
            Value::Map(_) | Value::Null | Value::Scalar(_) => bases.push(node),
        }
    }
    for base in bases {
        let Value::Map(pairs) = base.value else {
            return Err(syntax(base.line, "'<<' takes a block of keys or a list of them"));
        };
        for (key, value) in pairs {
            if present.insert(key.text.clone()) {
                entries.push((key, value));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> String {
        parse(text).unwrap_err().into_error("s").to_string()
    }

    fn get<'a>(node: &'a Node, key: &str) -> &'a Node {
        let Value::Map(entries) = &node.value else { panic!("not a map: {node:?}") };
        &entries.iter().find(|(k, _)| &*k.text == key).unwrap().1
    }

    #[test]
    fn scalars_keep_their_text_and_nodes_their_lines() {
        let node = parse("a: 0.10\nb:\n  - x\n  - {c: 1h}\n").unwrap();
        assert_eq!(get(&node, "a").value, Value::Scalar("0.10".into()));
        let Value::List(items) = &get(&node, "b").value else { panic!() };
        assert_eq!((items[0].line, items[1].line), (3, 4));
    }

    #[test]
    fn merged_keys_give_way_to_own_ones_before_and_after() {
        let node = parse("base: &b {x: 1, y: 2, z: 3}\nm: {x: 9, <<: *b, y: 8}\n").unwrap();
        let merged = get(&node, "m");
        for (key, value) in [("x", "9"), ("y", "8"), ("z", "3")] {
            assert_eq!(get(merged, key).value, Value::Scalar(value.into()), "{key}");
        }
        let Value::Map(entries) = &merged.value else { panic!() };
        assert_eq!(entries.len(), 3);
    }

    #[test]
    fn what_is_bounded_is_refused_in_one_line() {
        assert_eq!(
            failure("budgets: {a: &a {share: 1, children: *a}}"),
            "s line 1: budgets.a.children: this alias names a block that it lies in: a cycle"
        );
        let mut bomb = String::from("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
        for i in 1..9 {
            let inner = vec![format!("*a{}", i - 1); 10].join(",");
            bomb.push_str(&format!("a{i}: &a{i} [{inner}]\n"));
        }
        assert_eq!(failure(&bomb), "s line 5: aliases repeat more than 100000 values in all");
        let mut tower = String::from("a0: &a0 [1]\n");
        for i in 1..90 {
            tower.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
        }
        assert_eq!(failure(&tower), "s line 63: nested deeper than 64 levels");
        assert!(failure(&"[".repeat(100_000)).starts_with("s line 1: "));
        assert!(failure("a: *b").starts_with("s line 1: "));
        assert_eq!(failure(""), "s: the file is empty");
        assert_eq!(
            failure("a: 1\n---\nb: 2\n"),
            "s line 2: a second document starts here; a scenario is one document"
        );
        assert_eq!(
            failure("a: !!int 3"),
            "s line 1: tags (words that start with '!') have no meaning here"
        );
        assert_eq!(failure("[a]: 3"), "s line 1: a key must be a single value");
        assert_eq!(failure("a: {<<: 3}"), "s line 1: '<<' takes a block of keys or a list of them");
    }
}
