// Integers as the planner writes and rounds them, as BigInt.
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
