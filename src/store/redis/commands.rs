//! From requests to commands, and from replies to outcomes.
//!
//! A plan with one key is one `SET key record NX PX hold GET`; plans with neighbours share one
//! script call. A subject with any such plan in the request goes through the script with all its
//! events, so that they are decided in their order. On a cluster a call has the plans of one slot.

use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};
use redis::Value;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    batch::Batch,
    error::from_text,
    script::{Script, ScriptCall},
    wire::Form,
};
use crate::{
    domain::{
        claim::{
            self, Guards, MAX_RECORD_BYTES, Nonce, SettleAction, SettleOutcome, Standing, Vicinity,
        },
        key::KeyScheme,
        plan::Plan,
    },
    store::{ClaimOutcome, ClaimRequest, GiveBack, HoldMs, SettleRequest, StoreError},
};

/// Debts in one script call.
const DEBTS_PER_CALL: usize = 256;

/// What a claim may take over on its primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adoption {
    Nothing,
    /// What an earlier attempt of the same call left.
    Own,
}

/// How often a request is asked, and what is known by then.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) adoption: Adoption,
    /// For plans that came to [`Decided::NotNear`]: what they came to.
    pub(super) known: HashMap<usize, Vec<u8>>,
}

/// What a plan came to in one round.
#[derive(Clone, Debug)]
pub(super) enum Decided {
    Outcome(ClaimOutcome),
    /// What the script found near is not, by the exact distance: these values, as the script
    /// takes them. Nothing was claimed.
    NotNear(Vec<u8>),
}

/// Appends the commands for the given plans: those that have a command of their own, and those of
/// each script call behind them.
pub(super) fn push_claims(
    request: &ClaimRequest,
    plans: &[usize],
    scheme: &KeyScheme,
    round: &Round,
    batch: &mut Batch,
) -> (Vec<usize>, Vec<Vec<usize>>) {
    let sets_and_gets = batch.abilities().sets_and_gets.load(Ordering::Relaxed);
    let (scripted, singles) = split(
        request,
        plans,
        sets_and_gets && round.adoption == Adoption::Nothing,
    );
    let mut key = Vec::with_capacity(64);
    let mut record = Vec::with_capacity(MAX_RECORD_BYTES);
    let hold_ms = request.hold.get().to_string();
    let form = Form::new(&["SET"], &["NX", "PX", &hold_ms, "GET"]);
    for &index in &singles {
        write_key_and_record(request, index, scheme, &mut key, &mut record);
        batch.filled(&form, [&key, &record]);
    }
    let groups = batch.together(scripted, |index, key| {
        let plan = &request.plans.plans()[index];
        scheme.write_key(request.plans.primary(plan), plan.partition(), key);
    });
    for plans in &groups {
        batch.call(claim_call(request, plans, scheme, round, batch.is_asking()));
    }
    (singles, groups)
}

/// The plans that must go through the script, and the others.
fn split(request: &ClaimRequest, plans: &[usize], sets_and_gets: bool) -> (Vec<usize>, Vec<usize>) {
    let of = |index: usize| &request.plans.plans()[index];
    if !sets_and_gets {
        return (plans.to_vec(), Vec::new());
    }
    let guarded: HashSet<u64> = plans
        .iter()
        .map(|&index| of(index))
        .filter(|plan| plan.has_neighbours())
        .map(|plan| plan.partition().0)
        .collect();
    if guarded.is_empty() {
        return (Vec::new(), plans.to_vec());
    }
    plans
        .iter()
        .partition(|&&index| guarded.contains(&of(index).partition().0))
}

fn write_key_and_record(
    request: &ClaimRequest,
    index: usize,
    scheme: &KeyScheme,
    key: &mut Vec<u8>,
    record: &mut Vec<u8>,
) {
    let plan = &request.plans.plans()[index];
    key.clear();
    scheme.write_key(request.plans.primary(plan), plan.partition(), key);
    record.clear();
    plan.record(request.state, request.nonces[index])
        .encode(record);
}

/// `apart`: one plan, whose neighbours' keys are arguments. A server to which their slot is on its
/// way refuses several keys while one of them is missing. That they are read there all the same is
/// right, since the server they come from has just said that it has none of them, and while it says
/// so none can appear on it.
fn claim_call(
    request: &ClaimRequest,
    plans: &[usize],
    scheme: &KeyScheme,
    round: &Round,
    apart: bool,
) -> ScriptCall {
    let mut call = ScriptCall::new(Script::Claim);
    call.arguments.extend(claim_arguments(
        (request.hold, request.seen_hold),
        request.guards,
        round.adoption,
        apart,
    ));
    for &index in plans {
        let plan = &request.plans.plans()[index];
        let keys = request.plans.keys(plan).map(|(name, _)| {
            let mut key = Vec::with_capacity(64);
            scheme.write_key(name, plan.partition(), &mut key);
            key
        });
        let mut keys = keys.collect::<Vec<_>>().into_iter();
        call.keys
            .extend(keys.by_ref().take(if apart { 1 } else { usize::MAX }));
        let mut record = Vec::with_capacity(MAX_RECORD_BYTES);
        plan.record(request.state, request.nonces[index])
            .encode(&mut record);
        let known = round.known.get(&index).cloned().unwrap_or_default();
        call.arguments.extend([record, shape(request, plan), known]);
        call.arguments.extend(keys);
    }
    call
}

/// What stands before the plans; `holds`: of the claim, and of what a session has seen.
pub(super) fn claim_arguments(
    holds: (HoldMs, HoldMs),
    guards: Guards,
    adoption: Adoption,
    apart: bool,
) -> [Vec<u8>; 7] {
    let text = |number: u64| number.to_string().into_bytes();
    [
        text(holds.0.get()),
        text(holds.1.get()),
        text(guards.time_ns >> 32),
        text(guards.time_ns & 0xffff_ffff),
        guards.space_m.to_string().into_bytes(),
        text(u64::from(adoption == Adoption::Own)),
        text(u64::from(apart)),
    ]
}

/// How each neighbour is to be compared, as the script takes it.
fn shape(request: &ClaimRequest, plan: &Plan) -> Vec<u8> {
    request
        .plans
        .neighbours(plan)
        .map(
            |(_, vicinity)| match (vicinity.same_bucket, vicinity.same_cell) {
                (false, true) => b't',
                (true, false) => b'c',
                (false, false) | (true, true) => b'b',
            },
        )
        .collect()
}

/// The reply to one `SET … NX … GET`.
pub(super) fn single_outcome(
    request: &ClaimRequest,
    index: usize,
    reply: &Value,
) -> Result<Decided, StoreError> {
    match reply {
        Value::Nil => Ok(claimed(request.nonces[index], false)),
        Value::BulkString(_) => {
            let values = std::slice::from_ref(reply);
            Ok(decided(request, index, Adoption::Nothing, values))
        }
        Value::ServerError(error) => Err(error.into()),
        _ => Err(StoreError::Protocol),
    }
}

/// One plan's part of the script's reply.
pub(super) fn scripted_outcome(
    request: &ClaimRequest,
    index: usize,
    adoption: Adoption,
    reply: &Value,
) -> Result<Decided, StoreError> {
    let nonce = request.nonces[index];
    match reply {
        Value::Int(256) => Ok(claimed(nonce, false)),
        Value::Int(attempt @ 0..=255) => Ok(claimed(nonce.with_attempt(*attempt as u8), true)),
        Value::Int(_) => Err(StoreError::WrongType),
        Value::BulkString(text) => Err(from_text(&String::from_utf8_lossy(text))),
        Value::Array(values) => Ok(decided(request, index, adoption, values)),
        _ => Err(StoreError::Protocol),
    }
}

const fn claimed(nonce: Nonce, adopted: bool) -> Decided {
    Decided::Outcome(ClaimOutcome::Claimed { nonce, adopted })
}

/// What the values found under a plan's keys come to.
fn decided(request: &ClaimRequest, index: usize, adoption: Adoption, values: &[Value]) -> Decided {
    let plan = &request.plans.plans()[index];
    let found: SmallVec<[(Vicinity, Standing, &[u8]); 3]> = request
        .plans
        .keys(plan)
        .zip(values)
        .filter_map(|((_, vicinity), value)| match value {
            Value::BulkString(value) => Some((vicinity, Standing::decode(value), value.as_slice())),
            _ => None,
        })
        .collect();
    let is_own = |vicinity: Vicinity, standing: &Standing| {
        vicinity == Vicinity::PRIMARY
            && standing
                .nonce()
                .is_some_and(|nonce| nonce.same_holder(request.nonces[index]))
    };
    if request.recognises_own
        && adoption == Adoption::Nothing
        && found
            .iter()
            .any(|(vicinity, standing, _)| is_own(*vicinity, standing))
    {
        return Decided::Outcome(ClaimOutcome::Own);
    }
    let standings = found
        .iter()
        .map(|&(vicinity, standing, _)| (vicinity, standing));
    match claim::rival(plan.sighting(), request.guards, standings) {
        Some(rival) => Decided::Outcome(ClaimOutcome::Lost(rival)),
        None => Decided::NotNear(known(values)),
    }
}

/// The values under the neighbours' keys, each behind its number and its length.
fn known(values: &[Value]) -> Vec<u8> {
    let mut known = Vec::new();
    for (number, value) in (0..=u8::MAX).zip(values).skip(1) {
        if let Value::BulkString(value) = value
            && let Ok(length) = u8::try_from(value.len())
        {
            known.extend([number, length]);
            known.extend_from_slice(value);
        }
    }
    known
}

/// Appends script calls that settle; says which items each is for. A call reads all its keys, of
/// which a piece of work has few enough for one `MGET`, before it writes one: so a key that comes
/// again goes into a later call.
pub(super) fn push_settlements(
    request: &SettleRequest,
    items: &[usize],
    schemes: &[KeyScheme],
    batch: &mut Batch,
) -> Vec<Vec<usize>> {
    let write_key = |item: usize, key: &mut Vec<u8>| write_settled_key(request, item, schemes, key);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut calls = Vec::new();
    for items in batch.together(items.to_vec(), write_key) {
        let first = groups.len();
        let mut places = HashMap::with_capacity(items.len());
        for item in items {
            let mut key = Vec::with_capacity(64);
            write_key(item, &mut key);
            // Of two keys with one digest the second merely comes later.
            let place = places.entry(xxh3_64(&key));
            let place = *place.and_modify(|place| *place += 1).or_insert(first);
            if place == groups.len() {
                groups.push(Vec::new());
                calls.push(ScriptCall::new(Script::Settle));
            }
            groups[place].push(item);
            calls[place].keys.push(key);
        }
    }
    for (items, mut call) in groups.iter().zip(calls) {
        call.arguments = settle_arguments(request, items);
        batch.call(call);
    }
    groups
}

fn settle_arguments(request: &SettleRequest, items: &[usize]) -> Vec<Vec<u8>> {
    let action = match request.action {
        SettleAction::Confirm => "confirm",
        SettleAction::Release => "release",
        SettleAction::Renew => "renew",
    };
    let mut nonces = Vec::with_capacity(items.len() * 8);
    let mut holds = Vec::with_capacity(items.len());
    for &item in items {
        nonces.extend(request.items[item].nonce.to_bytes());
        holds.push(request.items[item].hold);
    }
    if holds.iter().all(|hold| *hold == holds[0]) {
        holds.truncate(1);
    }
    let mut arguments = vec![action.into(), nonces];
    let holds = holds.iter().map(|hold| hold.get().to_string().into_bytes());
    arguments.extend(holds);
    arguments
}

pub(super) fn write_settled_key(
    request: &SettleRequest,
    item: usize,
    schemes: &[KeyScheme],
    key: &mut Vec<u8>,
) {
    let item = &request.items[item];
    let scheme = &schemes[usize::from(item.namespace.0)];
    scheme.write_key(request.key(item), item.partition, key);
}

pub(super) fn settle_outcome(reply: &Value) -> Result<SettleOutcome, StoreError> {
    match reply {
        Value::Int(0) => Ok(SettleOutcome::NotHeld),
        Value::Int(1) => Ok(SettleOutcome::Applied),
        Value::Int(2) => Ok(SettleOutcome::AlreadyApplied),
        Value::Int(3) => Ok(SettleOutcome::AlreadyConfirmed),
        Value::Int(4) => Ok(SettleOutcome::Absent),
        Value::BulkString(text) => Err(from_text(&String::from_utf8_lossy(text))),
        _ => Err(StoreError::Protocol),
    }
}

/// A claim that must be given back, with its key as the store knows it.
#[derive(Clone, Debug)]
pub(super) struct Debt {
    pub(super) key: Vec<u8>,
    /// The record's first nine bytes: its state, too, so that what was confirmed since stays.
    head: Vec<u8>,
}

impl Debt {
    pub(super) const HEAD_BYTES: usize = 9;

    pub(super) const fn new(key: Vec<u8>, head: Vec<u8>) -> Self {
        Self { key, head }
    }
}

pub(super) fn debts(request: &ClaimRequest, claims: &[GiveBack], scheme: &KeyScheme) -> Vec<Debt> {
    claims
        .iter()
        .map(|claim| {
            let plan = &request.plans.plans()[claim.plan];
            let mut key = Vec::with_capacity(64);
            scheme.write_key(request.plans.primary(plan), plan.partition(), &mut key);
            let record = plan.record(request.state, claim.nonce);
            let head = Standing::Record(record).head().unwrap_or_default();
            Debt { key, head }
        })
        .collect()
}

/// Appends script calls that give the debts back; says which of them each call is for.
pub(super) fn push_give_backs(debts: &[Debt], batch: &mut Batch) -> Vec<Vec<usize>> {
    let mut groups = Vec::new();
    for chunk in (0..debts.len()).collect::<Vec<_>>().chunks(DEBTS_PER_CALL) {
        groups.extend(batch.together(chunk.to_vec(), |debt, key| {
            key.extend_from_slice(&debts[debt].key);
        }));
    }
    for group in &groups {
        let mut call = ScriptCall::new(Script::GiveBack);
        for &debt in group {
            call.keys.push(debts[debt].key.clone());
            call.arguments.push(debts[debt].head.clone());
        }
        batch.call(call);
    }
    groups
}

pub(super) fn contract_call(key: String, line: String, hold_ms: u64, replace: bool) -> ScriptCall {
    let mut call = ScriptCall::new(Script::Contract);
    call.keys.push(key.into_bytes());
    call.arguments.extend([
        line.into_bytes(),
        hold_ms.to_string().into_bytes(),
        vec![b'0' + u8::from(replace)],
    ]);
    call
}

/// The keys of the request's first plan at the given places, each with what stands there.
pub(super) fn forget_call(
    request: &ClaimRequest,
    found: &[(usize, Standing)],
    scheme: &KeyScheme,
) -> ScriptCall {
    let mut call = ScriptCall::new(Script::Forget);
    let keys = plan_keys(request, scheme);
    for (place, standing) in found {
        if let Some(key) = keys.get(*place) {
            call.keys.push(key.clone());
            call.arguments.push(standing.head().unwrap_or_default());
        }
    }
    call
}

/// The store keys of the request's first plan, in the plan's order.
pub(super) fn plan_keys(request: &ClaimRequest, scheme: &KeyScheme) -> Vec<Vec<u8>> {
    let plans = request.plans.plans().iter().take(1);
    let named = plans.flat_map(|plan| {
        request
            .plans
            .keys(plan)
            .map(|(name, _)| (name, plan.partition()))
    });
    named
        .map(|(name, partition)| {
            let mut key = Vec::with_capacity(64);
            scheme.write_key(name, partition, &mut key);
            key
        })
        .collect()
}
