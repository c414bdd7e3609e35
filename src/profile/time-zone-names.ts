/**
 * Names of the IANA time zone database that Intl.supportedValuesOf omits: links to other zones, and zones named after
 * an offset. They are taken from tzdata. A link is stored under its own name.
 */
export const FURTHER_TIME_ZONES = `
  Africa/Asmara Africa/Timbuktu America/Argentina/Buenos_Aires America/Argentina/Catamarca
  America/Argentina/ComodRivadavia America/Argentina/Cordoba America/Argentina/Jujuy
  America/Argentina/Mendoza America/Atikokan America/Atka America/Ensenada America/Fort_Wayne
  America/Indiana/Indianapolis America/Kentucky/Louisville America/Knox_IN America/Montreal
  America/Nipigon America/Nuuk America/Pangnirtung America/Porto_Acre America/Rainy_River America/Rosario
  America/Santa_Isabel America/Shiprock America/Thunder_Bay America/Virgin America/Yellowknife
  Antarctica/South_Pole Asia/Ashkhabad Asia/Choibalsan Asia/Chongqing Asia/Chungking Asia/Dacca
  Asia/Harbin Asia/Ho_Chi_Minh Asia/Istanbul Asia/Kashgar Asia/Kathmandu Asia/Kolkata Asia/Macao
  Asia/Tel_Aviv Asia/Thimbu Asia/Ujung_Pandang Asia/Ulan_Bator Asia/Yangon Atlantic/Faroe
  Atlantic/Jan_Mayen Australia/ACT Australia/Canberra Australia/Currie Australia/LHI Australia/NSW
  Australia/North Australia/Queensland Australia/South Australia/Tasmania Australia/Victoria
  Australia/West Australia/Yancowinna Brazil/Acre Brazil/DeNoronha Brazil/East Brazil/West CET CST6CDT
  Canada/Atlantic Canada/Central Canada/Eastern Canada/Mountain Canada/Newfoundland Canada/Pacific
  Canada/Saskatchewan Canada/Yukon Chile/Continental Chile/EasterIsland Cuba EET EST EST5EDT Egypt Eire
  Etc/GMT Etc/GMT+0 Etc/GMT+1 Etc/GMT+10 Etc/GMT+11 Etc/GMT+12 Etc/GMT+2 Etc/GMT+3 Etc/GMT+4 Etc/GMT+5
  Etc/GMT+6 Etc/GMT+7 Etc/GMT+8 Etc/GMT+9 Etc/GMT-0 Etc/GMT-1 Etc/GMT-10 Etc/GMT-11 Etc/GMT-12 Etc/GMT-13
  Etc/GMT-14 Etc/GMT-2 Etc/GMT-3 Etc/GMT-4 Etc/GMT-5 Etc/GMT-6 Etc/GMT-7 Etc/GMT-8 Etc/GMT-9 Etc/GMT0
  Etc/Greenwich Etc/UCT Etc/UTC Etc/Universal Etc/Zulu Europe/Belfast Europe/Kyiv Europe/Nicosia
  Europe/Tiraspol Europe/Uzhgorod Europe/Zaporozhye GB GB-Eire GMT GMT+0 GMT-0 GMT0 Greenwich HST
  Hongkong Iceland Iran Israel Jamaica Japan Kwajalein Libya MET MST MST7MDT Mexico/BajaNorte
  Mexico/BajaSur Mexico/General NZ NZ-CHAT Navajo PRC PST8PDT Pacific/Chuuk Pacific/Johnston
  Pacific/Kanton Pacific/Pohnpei Pacific/Samoa Pacific/Yap Poland Portugal ROC ROK Singapore Turkey UCT
  US/Alaska US/Aleutian US/Arizona US/Central US/East-Indiana US/Eastern US/Hawaii US/Indiana-Starke
  US/Michigan US/Mountain US/Pacific US/Samoa UTC Universal W-SU WET Zulu
`
  .trim()
  .split(/\s+/);

/** Time zone names of Ruby on Rails, which older clients send, by IANA name. */
export const RAILS_TIME_ZONES: Record<string, string[]> = {
  'Etc/GMT+12': ['International Date Line West'],
  'Pacific/Midway': ['Midway Island'],
  'Pacific/Pago_Pago': ['American Samoa'],
  'Pacific/Honolulu': ['Hawaii'],
  'America/Juneau': ['Alaska'],
  'America/Los_Angeles': ['Pacific Time (US & Canada)'],
  'America/Tijuana': ['Tijuana'],
  'America/Denver': ['Mountain Time (US & Canada)'],
  'America/Phoenix': ['Arizona'],
  'America/Chihuahua': ['Chihuahua'],
  'America/Mazatlan': ['Mazatlan'],
  'America/Chicago': ['Central Time (US & Canada)'],
  'America/Regina': ['Saskatchewan'],
  'America/Mexico_City': ['Guadalajara', 'Mexico City'],
  'America/Monterrey': ['Monterrey'],
  'America/Guatemala': ['Central America'],
  'America/New_York': ['Eastern Time (US & Canada)'],
  'America/Indiana/Indianapolis': ['Indiana (East)'],
  'America/Bogota': ['Bogota'],
  'America/Lima': ['Lima', 'Quito'],
  'America/Halifax': ['Atlantic Time (Canada)'],
  'America/Caracas': ['Caracas'],
  'America/La_Paz': ['La Paz'],
  'America/Santiago': ['Santiago'],
  'America/St_Johns': ['Newfoundland'],
  'America/Sao_Paulo': ['Brasilia'],
  'America/Argentina/Buenos_Aires': ['Buenos Aires'],
  'America/Montevideo': ['Montevideo'],
  'America/Guyana': ['Georgetown'],
  'America/Puerto_Rico': ['Puerto Rico'],
  'America/Nuuk': ['Greenland'],
  'Atlantic/South_Georgia': ['Mid-Atlantic'],
  'Atlantic/Azores': ['Azores'],
  'Atlantic/Cape_Verde': ['Cape Verde Is.'],
  'Europe/Dublin': ['Dublin'],
  'Europe/London': ['Edinburgh', 'London'],
  'Europe/Lisbon': ['Lisbon'],
  'Africa/Casablanca': ['Casablanca'],
  'Africa/Monrovia': ['Monrovia'],
  'Europe/Belgrade': ['Belgrade'],
  'Europe/Bratislava': ['Bratislava'],
  'Europe/Budapest': ['Budapest'],
  'Europe/Ljubljana': ['Ljubljana'],
  'Europe/Prague': ['Prague'],
  'Europe/Sarajevo': ['Sarajevo'],
  'Europe/Skopje': ['Skopje'],
  'Europe/Warsaw': ['Warsaw'],
  'Europe/Zagreb': ['Zagreb'],
  'Europe/Brussels': ['Brussels'],
  'Europe/Copenhagen': ['Copenhagen'],
  'Europe/Madrid': ['Madrid'],
  'Europe/Paris': ['Paris'],
  'Europe/Amsterdam': ['Amsterdam'],
  'Europe/Berlin': ['Berlin'],
  'Europe/Zurich': ['Bern', 'Zurich'],
  'Europe/Rome': ['Rome'],
  'Europe/Stockholm': ['Stockholm'],
  'Europe/Vienna': ['Vienna'],
  'Africa/Algiers': ['West Central Africa'],
  'Europe/Bucharest': ['Bucharest'],
  'Africa/Cairo': ['Cairo'],
  'Europe/Helsinki': ['Helsinki'],
  'Europe/Kyiv': ['Kyiv'],
  'Europe/Riga': ['Riga'],
  'Europe/Sofia': ['Sofia'],
  'Europe/Tallinn': ['Tallinn'],
  'Europe/Vilnius': ['Vilnius'],
  'Europe/Athens': ['Athens'],
  'Europe/Istanbul': ['Istanbul'],
  'Europe/Minsk': ['Minsk'],
  'Asia/Jerusalem': ['Jerusalem'],
  'Africa/Harare': ['Harare'],
  'Africa/Johannesburg': ['Pretoria'],
  'Europe/Kaliningrad': ['Kaliningrad'],
  'Europe/Moscow': ['Moscow', 'St. Petersburg'],
  'Europe/Volgograd': ['Volgograd'],
  'Europe/Samara': ['Samara'],
  'Asia/Kuwait': ['Kuwait'],
  'Asia/Riyadh': ['Riyadh'],
  'Africa/Nairobi': ['Nairobi'],
  'Asia/Baghdad': ['Baghdad'],
  'Asia/Tehran': ['Tehran'],
  'Asia/Muscat': ['Abu Dhabi', 'Muscat'],
  'Asia/Baku': ['Baku'],
  'Asia/Tbilisi': ['Tbilisi'],
  'Asia/Yerevan': ['Yerevan'],
  'Asia/Kabul': ['Kabul'],
  'Asia/Yekaterinburg': ['Ekaterinburg'],
  'Asia/Karachi': ['Islamabad', 'Karachi'],
  'Asia/Tashkent': ['Tashkent'],
  'Asia/Kolkata': ['Chennai', 'Kolkata', 'Mumbai', 'New Delhi'],
  'Asia/Kathmandu': ['Kathmandu'],
  'Asia/Almaty': ['Astana', 'Almaty'],
  'Asia/Dhaka': ['Dhaka'],
  'Asia/Colombo': ['Sri Jayawardenepura'],
  'Asia/Novosibirsk': ['Novosibirsk'],
  'Asia/Yangon': ['Rangoon'],
  'Asia/Bangkok': ['Bangkok', 'Hanoi'],
  'Asia/Jakarta': ['Jakarta'],
  'Asia/Krasnoyarsk': ['Krasnoyarsk'],
  'Asia/Shanghai': ['Beijing'],
  'Asia/Chongqing': ['Chongqing'],
  'Asia/Hong_Kong': ['Hong Kong'],
  'Asia/Urumqi': ['Urumqi'],
  'Asia/Kuala_Lumpur': ['Kuala Lumpur'],
  'Asia/Taipei': ['Taipei'],
  'Australia/Perth': ['Perth'],
  'Asia/Irkutsk': ['Irkutsk'],
  'Asia/Ulaanbaatar': ['Ulaanbaatar'],
  'Asia/Seoul': ['Seoul'],
  'Asia/Tokyo': ['Osaka', 'Sapporo', 'Tokyo'],
  'Asia/Yakutsk': ['Yakutsk'],
  'Australia/Darwin': ['Darwin'],
  'Australia/Adelaide': ['Adelaide'],
  'Australia/Canberra': ['Canberra'],
  'Australia/Melbourne': ['Melbourne'],
  'Australia/Sydney': ['Sydney'],
  'Australia/Brisbane': ['Brisbane'],
  'Australia/Hobart': ['Hobart'],
  'Asia/Vladivostok': ['Vladivostok'],
  'Pacific/Guam': ['Guam'],
  'Pacific/Port_Moresby': ['Port Moresby'],
  'Asia/Magadan': ['Magadan'],
  'Asia/Srednekolymsk': ['Srednekolymsk'],
  'Pacific/Guadalcanal': ['Solomon Is.'],
  'Pacific/Noumea': ['New Caledonia'],
  'Pacific/Fiji': ['Fiji'],
  'Asia/Kamchatka': ['Kamchatka'],
  'Pacific/Majuro': ['Marshall Is.'],
  'Pacific/Auckland': ['Auckland', 'Wellington'],
  'Pacific/Tongatapu': ["Nuku'alofa"],
  'Pacific/Fakaofo': ['Tokelau Is.'],
  'Pacific/Chatham': ['Chatham Is.'],
  'Pacific/Apia': ['Samoa'],
};
