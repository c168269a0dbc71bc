// What if all models ran with another batch size or sequence length: figures of a row, or why it has none.
async function whatIf(packed) {
  const data = await inflated(packed), evaluate = evaluator(data.helpers);
  return (number, inputs) => {
    if (!data.rows[number]) return { why: 'no formulas of this layout' };
    const [structure, own, rules, reserve] = data.rows[number], [figures, guards] = data.structures[structure];
    const of = evaluate(Object.fromEntries(Object.entries(own).map(([name, value]) => [name, BigInt(inputs[name] || value)])));
    for (const [test, message] of rules) if (!holds(test, of)) return { why: message };
    if (!guards.every(guard => holds(guard, of))) return { why: 'other kernels than in its formulas' };
    const [activations, peak, ...flops] = figures.map(size => size !== null && of(data.sizes[size]));
    return { texts: [inBytes(activations), inBytes(peak), ...flops.map(cost => (cost === false ? '' : inFlops(cost)))], needed: peak + BigInt(reserve) };
  };
}
