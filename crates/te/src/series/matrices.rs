//! Demand matrices: what the chains of one model demand at several times.

use std::collections::{HashMap, HashSet};

use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::{Model, ranges, read_traffic};

/// The demands of all chains at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Its name, such as a time of day.
    pub name: String,
    /// w_cz of every chain and stage, Mbit/s.
    pub forward: Vec<Vec<f64>>,
    /// v_cz of every chain and stage, Mbit/s.
    pub reverse: Vec<Vec<f64>>,
}

impl Matrix {
    /// The demands that a model has itself.
    pub fn of(model: &Model, name: &str) -> Matrix {
        Matrix {
            name: name.to_owned(),
            forward: model
                .chains
                .iter()
                .map(|c| c.forward_mbps.clone())
                .collect(),
            reverse: model
                .chains
                .iter()
                .map(|c| c.reverse_mbps.clone())
                .collect(),
        }
    }

    /// The model with these demands.
    pub fn apply(&self, model: &Model) -> Model {
        let mut changed = model.clone();
        for (index, chain) in changed.chains.iter_mut().enumerate() {
            chain.forward_mbps.clone_from(&self.forward[index]);
            chain.reverse_mbps.clone_from(&self.reverse[index]);
        }
        changed
    }

    /// Whether a chain demands anything.
    pub fn demands(&self, chain: usize) -> bool {
        let both = self.forward[chain].iter().chain(&self.reverse[chain]);
        both.copied().any(|mbps| mbps > 0.0)
    }

    /// In which directions each of a chain's stages has traffic.
    pub(super) fn directions(&self, chain: usize) -> Vec<bool> {
        let both = self.forward[chain].iter().chain(&self.reverse[chain]);
        both.map(|mbps| *mbps > 0.0).collect()
    }

    fn scale(&mut self, factor: f64) {
        let both = self.forward.iter_mut().chain(&mut self.reverse);
        both.flatten().for_each(|mbps| *mbps *= factor);
    }
}

/// Reads the matrices of one file: a matrix, `{"matrices": [matrix, …]}`, or a model whose chains' demands are taken.
///
/// A matrix is `{"name", "factor", "demands": [{"chain", "forward_mbps", "reverse_mbps"}]}`: the demands of the model
/// times `factor` (1 unless stated), then those of the chains listed. Of a model, chains that it lacks demand nothing.
/// `fallback` names a matrix that has no name of its own.
///
/// # Errors
/// The first mistake found, with its JSON pointer.
pub fn read(document: &Value, model: &Model, fallback: &str) -> Result<Vec<Matrix>, InputError> {
    let has = |name: &str| matches!(document, Value::Object(m) if m.iter().any(|(n, _)| n == name));
    if has("nodes") {
        let other = Model::from_value(document)?;
        return Ok(vec![of_model(&other, model, fallback)?]);
    }
    if !has("matrices") {
        return Ok(vec![matrix(Place::ROOT, document, model, fallback)?]);
    }
    let root = Fields::of(Place::ROOT, document, &["matrices"])?;
    let list = root.place.name("matrices");
    let values = root.list("matrices")?;
    if values.is_empty() {
        return Err(list.error(Reason::WrongLength, "needs at least one matrix"));
    }
    let read = |(i, value): (usize, &Value)| {
        matrix(list.index(i), value, model, &format!("{fallback}[{i}]"))
    };
    values.iter().enumerate().map(read).collect()
}

/// Refuses a series in which two matrices have the same name, because results refer to matrices by name.
///
/// # Errors
/// The second of the two.
pub fn check_names(matrices: &[Matrix]) -> Result<(), InputError> {
    let mut names = HashSet::new();
    match matrices.iter().find(|m| !names.insert(m.name.as_str())) {
        None => Ok(()),
        Some(matrix) => Err(InputError::new(
            "/name",
            Reason::Duplicate,
            format!("two matrices are named '{}'; name them apart", matrix.name),
        )),
    }
}

fn matrix(
    place: Place<'_>,
    value: &Value,
    model: &Model,
    fallback: &str,
) -> Result<Matrix, InputError> {
    let fields = Fields::of(place, value, &["name", "factor", "demands"])?;
    let name = match fields.optional("name") {
        Some(name) => place.name("name").text(name)?,
        None => fallback,
    };
    let mut matrix = Matrix::of(model, name);
    if let Some(factor) = fields.optional("factor") {
        matrix.scale(ranges::FACTOR.at(place.name("factor"), factor)?);
    } else {
        fields.required("demands")?;
    }
    let index: HashMap<&str, usize> = model
        .chains
        .iter()
        .enumerate()
        .map(|(i, c)| (c.id.as_str(), i))
        .collect();
    let mut given = HashSet::new();
    let list = place.name("demands");
    let demands = fields
        .optional("demands")
        .map_or(Ok(&[][..]), |v| list.list(v))?;
    for (i, item) in demands.iter().enumerate() {
        let entry = list.index(i);
        let fields = Fields::of(entry, item, &["chain", "forward_mbps", "reverse_mbps"])?;
        let id = fields.text("chain")?;
        let place = entry.name("chain");
        let Some(&chain) = index.get(id) else {
            let message = format!("there is no chain '{id}' in the model; add it there");
            return Err(place.error(Reason::DanglingReference, message));
        };
        if !given.insert(chain) {
            let message = format!("the chain '{id}' is already in this list");
            return Err(place.error(Reason::Duplicate, message));
        }
        if fields.optional("forward_mbps").is_none() && fields.optional("reverse_mbps").is_none() {
            let message = "states no demand; give 'forward_mbps' or 'reverse_mbps'";
            return Err(entry.error(Reason::MissingField, message));
        }
        let stages = model.chains[chain].forward_mbps.len();
        if let Some(value) = fields.optional("forward_mbps") {
            matrix.forward[chain] = read_traffic(entry.name("forward_mbps"), value, stages)?;
        }
        if let Some(value) = fields.optional("reverse_mbps") {
            matrix.reverse[chain] = read_traffic(entry.name("reverse_mbps"), value, stages)?;
        }
    }
    not_empty(place, matrix)
}

fn not_empty(place: Place<'_>, matrix: Matrix) -> Result<Matrix, InputError> {
    if (0..matrix.forward.len()).any(|chain| matrix.demands(chain)) {
        return Ok(matrix);
    }
    Err(place.error(
        Reason::OutOfRange,
        "no chain demands anything; leave the matrix out",
    ))
}

fn of_model(other: &Model, model: &Model, name: &str) -> Result<Matrix, InputError> {
    let mut matrix = Matrix::of(model, name);
    matrix.scale(0.0);
    let index: HashMap<&str, usize> = model
        .chains
        .iter()
        .enumerate()
        .map(|(i, c)| (c.id.as_str(), i))
        .collect();
    for (i, chain) in other.chains.iter().enumerate() {
        let refuse = |reason, message: String| {
            Err(InputError::new(format!("/chains/{i}/id"), reason, message))
        };
        let Some(&at) = index.get(chain.id.as_str()) else {
            let message = format!(
                "there is no chain '{}' in the model; add it there",
                chain.id
            );
            return refuse(Reason::DanglingReference, message);
        };
        if chain.forward_mbps.len() != model.chains[at].forward_mbps.len() {
            let message = format!(
                "the chain '{}' has another number of VNFs in the model",
                chain.id
            );
            return refuse(Reason::Contradiction, message);
        }
        matrix.forward[at].clone_from(&chain.forward_mbps);
        matrix.reverse[at].clone_from(&chain.reverse_mbps);
    }
    not_empty(Place::ROOT, matrix)
}
