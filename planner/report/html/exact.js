// Exact figures: expressions over symbols as BigInt, and their rounding. The expressions are the planner's own.
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
        known.set(base, HELPERS[name](...sizes.map(of)));
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

const exactly = value => String(value).replace(/\B(?=(\d{3})+$)/g, ',').replace('-', '−');
const nearest = (numerator, denominator) => (2n * numerator + denominator) / (2n * denominator);

function decimal(digits, decimals) {
  if (!decimals) return exactly(digits);
  const base = 10n ** BigInt(decimals);
  return `${exactly(digits / base)}.${String(digits % base).padStart(decimals, '0')}`;
}

// Four significant digits, as the planner rounds.
function scaled(value, base, units) {
  if (value < 0n) return `−${scaled(-value, base, units)}`;
  let power = 0, unit = 1n;
  while (power < units.length - 1 && value >= unit * base) { power += 1; unit *= base; }
  if (!power) return `${exactly(value)} ${units[0]}`.trim();
  let decimals = Math.max(0, 4 - String(value / unit).length);
  let digits = nearest(value * 10n ** BigInt(decimals), unit);
  if (decimals && digits >= 10000n) {
    decimals -= 1;
    digits = nearest(value * 10n ** BigInt(decimals), unit);
  }
  if (!decimals && digits >= base && power < units.length - 1) return `${decimal(1000n, 3)} ${units[power + 1]}`;
  return `${decimal(digits, decimals)} ${units[power]}`;
}

const inBytes = value => scaled(value, 1024n, ['B', 'KiB', 'MiB', 'GiB']);
const inFlops = value => scaled(value, 1000n, ['FLOP', ...[...'kMGTPEZYRQ'].map(letter => `${letter}FLOP`)]);
const inCounts = value => scaled(value, 1000n, ['', 'k', 'M', 'B', 'T']);
const ROUNDED = { bytes: inBytes, FLOP: inFlops };
const rounded = (value, unit) => (ROUNDED[unit] || inCounts)(value);
