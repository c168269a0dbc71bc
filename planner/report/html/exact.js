// Exact figures: expressions over symbols as BigInt. The expressions are the planner's own.
const HELPERS = {
  ceil_div: (a, b) => -((-a - (((-a % b) + b) % b)) / b),
  floor_divide: (a, b) => (a - (((a % b) + b) % b)) / b,
  minimum: (...sizes) => sizes.reduce((a, b) => (b < a ? b : a)),
  maximum: (...sizes) => sizes.reduce((a, b) => (b > a ? b : a)),
  power_of_two: size => { let power = 1n; while (power < size) power *= 2n; return power; },
};

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

// Writes arguments of a helper in full, of which some are what they add to the one before: ['8*B', '&4*B-2'] are 8·B and 12·B - 2.
function inFull(sizes) {
  let terms = new Map();
  return sizes.map(size => {
    if (size[0] !== '&') terms = new Map();
    for (const term of size.replace('&', '').match(/[+-]?[^+-]+/g)) {
      const [, sign, multiple, product] = /^([+-]?)(\d*)\*?(.*)$/.exec(term);
      terms.set(product, (terms.get(product) || 0n) + BigInt(`${sign === '-' ? '-' : ''}${multiple || 1}`));
    }
    const parts = [...terms].filter(([, multiple]) => multiple).map(([product, multiple]) => {
      const amount = multiple < 0n ? -multiple : multiple;
      return (multiple < 0n ? '-' : '+') + (!product ? amount : amount === 1n ? product : `${amount}*${product}`);
    });
    return parts.join('').replace(/^\+/, '') || '0';
  });
}

const RELATIONS = { '<': (a, b) => a < b, '>': (a, b) => a > b, '>=': (a, b) => a >= b, '<=': (a, b) => a <= b, '==': (a, b) => a === b, '!=': (a, b) => a !== b };
// Returns whether a condition on expressions holds; `in`: the values of a size as bits from 1 on.
function holds([relation, left, right], of) {
  if (relation === '&') return holds(left, of) && holds(right, of);
  if (relation === '|') return holds(left, of) || holds(right, of);
  return relation === 'in' ? right[Number(of(left)) - 1] === '1' : RELATIONS[relation](of(left), of(right));
}

const superscript = power => [...power].map(digit => '⁰¹²³⁴⁵⁶⁷⁸⁹'[digit]).join('');
const MARKS = { ceil_div: ['⌈', ' / ', '⌉'], floor_divide: ['⌊', ' / ', '⌋'] };
// Writes an expression for people, with `name` of each symbol.
function written(text, helpers, name) {
  return text.replace(/(?!^)([+-])/g, ' $1 ').replace(/(@\d+|[A-Za-z_][\w.]*)(?:\^(\d+))?/g, (_, base, power) => {
    const [helper, ...sizes] = base[0] === '@' ? helpers[base.slice(1)] : [];
    const [open, between, close] = MARKS[helper] || [`${helper}(`, ', ', ')'];
    const shown = helper ? open + inFull(sizes).map(size => written(size, helpers, name)).join(between) + close : name(base);
    return shown + (power ? superscript(power) : '');
  }).replaceAll('*', '·');
}
