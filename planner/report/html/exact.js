// Exact figures: expressions over symbols as BigInt. The expressions are the planner's own.
const HELPERS = {
  ceil_div: (a, b) => -((-a - (((-a % b) + b) % b)) / b),
  floor_divide: (a, b) => (a - (((a % b) + b) % b)) / b,
  minimum: (...sizes) => sizes.reduce((a, b) => (b < a ? b : a)),
  maximum: (...sizes) => sizes.reduce((a, b) => (b > a ? b : a)),
  power_of_two: size => { let power = 1n; while (power < size) power *= 2n; return power; },
  common_multiple: (a, b) => { let one = a; for (let other = b; other; ) [one, other] = [other, one % other]; return a / one * b; },
};

// Returns data that were compressed.
async function inflated(text) {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))).json();
}

// Returns a function of the values of symbols, which returns a function that evaluates expressions.
function evaluator(helpers) {
  const parsed = new Map();
  const parse = text => {
    if (!parsed.has(text)) {
      parsed.set(text, text.match(/[+-]?[^+-]+/g).map(term => {
        let multiple = 1n;
        const factors = [];
        for (const factor of term.replace(/^[+-]/, '').split('*')) {
          const [base, power] = factor.split('^');
          if (/^\d/.test(base)) multiple *= BigInt(base);
          else factors.push([base, power ? BigInt(power) : 1n]);
        }
        return [term[0] === '-' ? -multiple : multiple, factors];
      }));
    }
    return parsed.get(text);
  };
  return values => {
    const known = new Map(), sums = new Map();
    const value = base => {
      if (base[0] !== '@') return values[base];
      if (!known.has(base)) {
        const [name, ...sizes] = helpers[base.slice(1)];
        let before = 0n;
        known.set(base, HELPERS[name](...sizes.map(size => { before = size[0] === '&' ? before + of(size.slice(1)) : of(size); return before; })));
      }
      return known.get(base);
    };
    const of = text => {
      if (!sums.has(text)) {
        let sum = 0n;
        for (const [multiple, factors] of parse(text)) {
          let term = multiple;
          for (const [base, power] of factors) term *= power === 1n ? value(base) : value(base) ** power;
          sum += term;
        }
        sums.set(text, sum);
      }
      return sums.get(text);
    };
    return of;
  };
}

const RELATIONS = { '<': (a, b) => a < b, '>': (a, b) => a > b, '>=': (a, b) => a >= b, '<=': (a, b) => a <= b, '==': (a, b) => a === b, '!=': (a, b) => a !== b };
// Returns whether a condition on expressions holds; `in`: the values of a size as bits from 1 on.
function holds([relation, left, right], of) {
  if (relation === '&') return holds(left, of) && holds(right, of);
  if (relation === '|') return holds(left, of) || holds(right, of);
  return relation === 'in' ? right[Number(of(left)) - 1] === '1' : RELATIONS[relation](of(left), of(right));
}
