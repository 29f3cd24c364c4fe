//! HiGHS (Huangfu and Hall) behind one safe function.

use std::ffi::CString;
use std::os::raw::c_void;

use crate::arc::{Program, Row};

/// How HiGHS is to solve a continuous program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Dual simplex.
    Simplex,
    /// Interior point, without crossover to a vertex.
    InteriorPoint,
}

/// How a run of HiGHS ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Optimal: objective value and columns.
    Optimal(f64, Vec<f64>),
    /// Proved infeasible.
    Infeasible,
    /// Anything else, by HiGHS's number of the model status.
    Other(i32),
}

struct Handle(*mut c_void);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pointer came from Highs_create and is destroyed once.
        unsafe { highs_sys::Highs_destroy(self.0) }
    }
}

impl Handle {
    fn text_option(&self, name: &str, value: &str) {
        let (name, value) = (c_string(name), c_string(value));
        // SAFETY: valid handle, strings that end in zero and outlive the call.
        unsafe { highs_sys::Highs_setStringOptionValue(self.0, name.as_ptr(), value.as_ptr()) };
    }

    fn number_option(&self, name: &str, value: f64) {
        let name = c_string(name);
        // SAFETY: as above.
        unsafe { highs_sys::Highs_setDoubleOptionValue(self.0, name.as_ptr(), value) };
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("option names hold no zero byte")
}

/// Solves a program on one thread, with a time limit in seconds.
pub fn solve(program: &Program, method: Method, time_limit: f64) -> Outcome {
    // SAFETY: creates an instance that `Handle` owns.
    let highs = Handle(unsafe { highs_sys::Highs_create() });
    let quiet = c_string("output_flag");
    // SAFETY: as in `Handle`.
    unsafe { highs_sys::Highs_setBoolOptionValue(highs.0, quiet.as_ptr(), 0) };
    let threads = c_string("threads");
    // SAFETY: as in `Handle`.
    unsafe { highs_sys::Highs_setIntOptionValue(highs.0, threads.as_ptr(), 1) };
    highs.number_option("time_limit", time_limit);
    match method {
        Method::Simplex => highs.text_option("solver", "simplex"),
        Method::InteriorPoint => {
            highs.text_option("solver", "ipm");
            highs.text_option("run_crossover", "off");
        }
    }
    if !pass(&highs, program) {
        return Outcome::Other(-1);
    }
    // SAFETY: valid handle with a model.
    unsafe { highs_sys::Highs_run(highs.0) };
    outcome(&highs, program)
}

/// What a row is divided by: its larger finite bound, or where that is zero its largest coefficient. HiGHS's tolerances
/// are absolute, 1e-7; on a capacity of 500 000 Mbit/s they would ask for 13 digits.
fn row_unit((low, high, entries): &Row) -> f64 {
    let largest = |values: &mut dyn Iterator<Item = f64>| {
        values
            .filter(|value| value.is_finite())
            .fold(0.0, |most: f64, value| most.max(value.abs()))
    };
    let bound = largest(&mut [*low, *high].into_iter());
    if bound > 0.0 {
        return bound;
    }
    let coefficient = largest(&mut entries.iter().map(|(_, value)| *value));
    if coefficient > 0.0 { coefficient } else { 1.0 }
}

/// HiGHS's number of the sense of a minimisation.
const MINIMISE: i32 = 1;

fn pass(highs: &Handle, program: &Program) -> bool {
    let mut start: Vec<i32> = Vec::with_capacity(program.rows.len());
    let (mut index, mut value): (Vec<i32>, Vec<f64>) = (Vec::new(), Vec::new());
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    for row in &program.rows {
        let unit = row_unit(row);
        let (low, high, entries) = row;
        start.push(index.len() as i32);
        index.extend(entries.iter().map(|(column, _)| *column as i32));
        value.extend(entries.iter().map(|(_, v)| *v / unit));
        lower.push(*low / unit);
        upper.push(*high / unit);
    }
    let integrality: Vec<i32> = program.integer.iter().map(|i| i32::from(*i)).collect();
    let (columns, rows, entries) = (
        program.cost.len() as i32,
        program.rows.len() as i32,
        index.len() as i32,
    );
    // Always a minimisation: after the interior point of a maximisation, HiGHS 1.15's postsolve loses the sign of the
    // duals, finds them wrong, and takes back the optimum ("Unknown").
    let sign = if program.maximise { -1.0 } else { 1.0 };
    let cost: Vec<f64> = program.cost.iter().map(|c| sign * c).collect();
    // SAFETY: every array has the length that the counts state; format 2 is by rows. HiGHS copies them.
    let status = unsafe {
        if program.integer.contains(&true) {
            highs_sys::Highs_passMip(
                highs.0,
                columns,
                rows,
                entries,
                2,
                MINIMISE,
                0.0,
                cost.as_ptr(),
                program.lower.as_ptr(),
                program.upper.as_ptr(),
                lower.as_ptr(),
                upper.as_ptr(),
                start.as_ptr(),
                index.as_ptr(),
                value.as_ptr(),
                integrality.as_ptr(),
            )
        } else {
            highs_sys::Highs_passLp(
                highs.0,
                columns,
                rows,
                entries,
                2,
                MINIMISE,
                0.0,
                cost.as_ptr(),
                program.lower.as_ptr(),
                program.upper.as_ptr(),
                lower.as_ptr(),
                upper.as_ptr(),
                start.as_ptr(),
                index.as_ptr(),
                value.as_ptr(),
            )
        }
    };
    status == 0
}

/// HiGHS's numbers of model statuses (HConst.h).
const OPTIMAL: i32 = 7;
const INFEASIBLE: i32 = 8;
const UNBOUNDED_OR_INFEASIBLE: i32 = 9;

fn outcome(highs: &Handle, program: &Program) -> Outcome {
    // SAFETY: valid handle; the arrays have the model's lengths.
    match unsafe { highs_sys::Highs_getModelStatus(highs.0) } {
        OPTIMAL => {
            let mut x = vec![0.0; program.cost.len()];
            let mut unused = vec![0.0; program.cost.len().max(program.rows.len())];
            let mut duals = vec![0.0; program.rows.len()];
            let mut activity = vec![0.0; program.rows.len()];
            // SAFETY: lengths as HiGHS documents: columns, columns, rows, rows.
            unsafe {
                highs_sys::Highs_getSolution(
                    highs.0,
                    x.as_mut_ptr(),
                    unused.as_mut_ptr(),
                    activity.as_mut_ptr(),
                    duals.as_mut_ptr(),
                );
            }
            let value = x.iter().zip(&program.cost).map(|(x, c)| x * c).sum();
            Outcome::Optimal(value, x)
        }
        INFEASIBLE | UNBOUNDED_OR_INFEASIBLE => Outcome::Infeasible,
        other => Outcome::Other(other),
    }
}
