//! Native attachments: two different native ports, and a function; no other attachment has either.

use super::*;
use crate::native::{Filter, FilterRule, Function};
use crate::rules::matching::matching;
use contracts::forwarder::{attachment, port::Device};
use wire::steering::Direction;

impl Compiler<'_> {
    /// What a native attachment does; nothing for others.
    pub(super) fn function(
        &self,
        field: &str,
        attachment: &contract::Attachment,
        kind: AttachmentKind,
        (ingress, egress): (usize, usize),
    ) -> Result<Option<Function>> {
        let is_native = kind == AttachmentKind::Native;
        for (name, port) in [("ingress_port", ingress), ("egress_port", egress)] {
            let device = self.set.ports[port].device.as_ref();
            if matches!(device, Some(Device::Native(_))) != is_native {
                let problem = match is_native {
                    true => "a native attachment needs native ports",
                    false => "only native attachments have native ports",
                };
                return Err(RuleError::new(format!("{field}.{name}"), problem));
            }
        }
        match &attachment.function {
            None if !is_native => Ok(None),
            None => Err(RuleError::new(
                format!("{field}.filter"),
                "a native attachment needs a function",
            )),
            Some(_) if !is_native => Err(RuleError::new(
                format!("{field}.filter"),
                "only native attachments have functions",
            )),
            Some(_) if ingress == egress => Err(RuleError::new(
                format!("{field}.egress_port"),
                "a native attachment needs two ports",
            )),
            Some(attachment::Function::Filter(filter)) => {
                let rules = filter.rules.iter().enumerate();
                let rules = rules.map(|(index, rule)| {
                    let field = format!("{field}.filter.rules[{index}]");
                    Ok(FilterRule {
                        matching: matching(&format!("{field}.match"), rule.r#match.as_ref())?,
                        direction: match known(&field, "direction", rule.direction)? {
                            contract::Direction::Unspecified => None,
                            contract::Direction::Forward => Some(Direction::Forward),
                            contract::Direction::Reverse => Some(Direction::Reverse),
                        },
                        accept: rule.accept,
                    })
                });
                Ok(Some(Function::Filter(Filter {
                    rules: rules.collect::<Result<_>>()?,
                    accept: [filter.accept_forward, filter.accept_reverse],
                })))
            }
        }
    }
}
