// Colours: of classes by the golden angle in OKLCH, with three lightnesses, so that neighbors in number are far apart;
// of known and new, and of amounts, so that people who see few colours can tell them apart.

const THETA = 137.50776;

/** OKLCH (Ottosson, 2020) to the bytes of sRGB. */
export function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((linear) => {
    const v = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, v)));
  });
}

export const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";

export function ofClass(number) {
  if (number < 0) return ofNothing();
  const [light, chroma] = (
    isDark()
      ? [
          [0.74, 0.15],
          [0.62, 0.17],
          [0.86, 0.1],
        ]
      : [
          [0.6, 0.16],
          [0.72, 0.14],
          [0.45, 0.13],
        ]
  )[number % 3];
  return oklch(light, chroma, 25 + number * THETA);
}

export const ofNothing = () => (isDark() ? [95, 95, 100] : [176, 173, 166]);

/** Of all kinds that have no colour of their own: darker than nothing, or lighter where the ground is dark. */
export const ofOthers = () => (isDark() ? [150, 150, 158] : [112, 110, 104]);

/** Blue for known and orange for new, after Okabe and Ito. */
export const ofKnown = (known) => (known ? (isDark() ? [86, 160, 220] : [0, 114, 178]) : [230, 145, 0]);

/** From dark blue over grey to yellow: lightness grows with the amount. share in 0..1 */
export function ofAmount(share) {
  if (!Number.isFinite(share)) return ofNothing();
  const t = Math.min(1, Math.max(0, share));
  return oklch((isDark() ? 0.42 : 0.32) + 0.5 * t, 0.05 + 0.1 * Math.abs(2 * t - 1), t < 0.5 ? 262 : 96);
}

export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
