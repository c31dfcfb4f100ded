// The texts of a page whose contrast with what lies behind them is below 4.5 (WCAG 2.2, 1.4.3), and how many were seen.
() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((one) => one / 255);
  };
  const luminance = (colour) => {
    const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    const [red, green, blue] = channels(colour).map(linear);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "white";
  };
  const kinds = "p, th, td, h1, h2, h3, a, mark, mark b, caption, summary, li, footer, figcaption, pre";
  const low = [];
  let seen = 0;
  for (const element of document.querySelectorAll(kinds)) {
    const text = element.textContent.trim().slice(0, 40);
    if (!text || element.matches(".skip")) continue;
    const style = getComputedStyle(element);
    const colours = [style.color, behind(element)];
    const [light, dark] = colours.map(luminance).sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    seen += 1;
    if (contrast < 4.5) low.push(`${element.tagName} ${text} ${contrast.toFixed(2)}`);
  }
  return [seen, low];
}
